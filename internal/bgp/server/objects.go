// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/bgp/wire"
	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/bgp"
)

// objects are the objects of BGP. Of one that cannot be read the last version that could be is used.
type objects struct {
	configurations map[store.Key]model.BGPConfiguration
	peers          map[store.Key]model.BGPPeer
	filters        map[store.Key]model.BGPFilter
	// raw are the manifests that were read last.
	raw map[store.Key]string
	// invalid is why an object cannot be read; warnings are fields that weft does not have.
	invalid  map[store.Key]error
	warnings map[store.Key][]model.Warning
}

func newObjects() *objects {
	return &objects{
		configurations: map[store.Key]model.BGPConfiguration{}, peers: map[store.Key]model.BGPPeer{},
		filters: map[store.Key]model.BGPFilter{}, raw: map[store.Key]string{}, invalid: map[store.Key]error{},
		warnings: map[store.Key][]model.Warning{},
	}
}

// set replaces all objects.
func (o *objects) set(all []json.RawMessage) {
	exists := map[store.Key]bool{}
	for _, raw := range all {
		object, err := store.NewObject(raw)
		key := object.Key
		if exists[key] = true; o.raw[key] == string(raw) {
			continue
		}
		o.raw[key] = string(raw)
		delete(o.invalid, key)
		delete(o.warnings, key)
		if err == nil {
			err = o.read(object)
		}
		if err != nil {
			o.failed(key, err)
		}
	}
	for key := range o.raw {
		if !exists[key] {
			delete(o.raw, key)
			delete(o.configurations, key)
			delete(o.peers, key)
			delete(o.filters, key)
			delete(o.invalid, key)
			delete(o.warnings, key)
		}
	}
}

func (o *objects) read(object store.Object) error {
	key := object.Key
	switch {
	case calico.IsBGPConfiguration(key):
		c, warnings, err := calico.BGPConfiguration(object)
		if err != nil {
			return err
		}
		o.configurations[key], o.warnings[key] = c, warnings
	case calico.IsBGPPeer(key):
		p, warnings, err := calico.BGPPeer(object)
		if err != nil {
			return err
		}
		o.peers[key], o.warnings[key] = p, warnings
	case calico.IsBGPFilter(key):
		f, err := calico.BGPFilter(object)
		if err != nil {
			return err
		}
		o.filters[key] = f
	}
	return nil
}

// failed keeps an object that cannot be read as it was. A filter that never could be lets no route pass.
func (o *objects) failed(key store.Key, err error) {
	o.invalid[key] = err
	if _, ok := o.filters[key]; !ok && calico.IsBGPFilter(key) {
		o.filters[key] = model.BGPFilter{Name: key.Name, Broken: true}
	}
}

// problems returns what is wrong with single objects, sorted.
func (o *objects) problems() []bgp.Problem {
	var out []bgp.Problem
	for _, err := range o.invalid {
		p := bgp.Problem{Message: err.Error(), Hint: "correct it; its last valid version is used, if any"}
		var fault *model.Error
		if errors.As(err, &fault) {
			p = bgp.Problem{Message: fault.Msg, Hint: fault.Hint}
		}
		out = append(out, p)
	}
	for key, all := range o.warnings {
		for _, w := range all {
			out = append(out, bgp.Problem{Message: fmt.Sprintf("%s: %s: %s", key, w.Field, w.Msg), Hint: w.Hint})
		}
	}
	slices.SortFunc(out, func(a, b bgp.Problem) int { return strings.Compare(a.Message, b.Message) })
	return slices.Compact(out)
}

// facts returns the facts of a request with the objects, and the passwords that they need.
func (o *objects) facts(r wire.Request) (bgp.Facts, []model.SecretKey) {
	f := bgp.Facts{
		Self: r.Self, Nodes: r.Nodes, Own: r.Own, OnLink: r.OnLink, Services: r.Services, Backend: r.Backend,
		Configurations: unique(o.configurations), Peers: unique(o.peers), Filters: unique(o.filters),
		Pools: r.Pools, Unexported: r.Unexported, Passwords: map[model.SecretKey]string{},
	}
	var needed []model.SecretKey
	need := func(k model.SecretKey) {
		if k == (model.SecretKey{}) || slices.Contains(needed, k) {
			return
		}
		needed = append(needed, k)
		if text, ok := r.Passwords[wire.SecretName(k)]; ok {
			f.Passwords[k] = text
		}
	}
	for _, c := range f.Configurations {
		need(c.MeshPassword)
	}
	for _, p := range f.Peers {
		need(p.Password)
	}
	return f, needed
}

// unique returns the objects sorted by name, of each name one.
func unique[T any](all map[store.Key]T) []T {
	rank := func(k store.Key) int {
		return slices.Index([]string{store.Group, "projectcalico.org", "crd.projectcalico.org"}, k.Group)
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b store.Key) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return rank(a) - rank(b)
	})
	keys = slices.CompactFunc(keys, func(a, b store.Key) bool { return a.Name == b.Name })
	var out []T
	for _, k := range keys {
		out = append(out, all[k])
	}
	return out
}
