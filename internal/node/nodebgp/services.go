// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// servicesWait is how long facts are held back for the Services: without them their addresses would be withdrawn.
const servicesWait = 30 * time.Second

// services are the Services whose single addresses may be announced, and where their endpoints are. They are watched once a
// BGPConfiguration has ranges of Services.
type services struct {
	cfg     Config
	watched bool
	// known: they are, or the agent has waited for them long enough.
	known  bool
	all    map[store.Key]model.BGPService
	slices map[store.Key]endpoints
}

// endpoints says of a part of a Service's endpoints whether one is ready, and whether one on this node is.
type endpoints struct {
	service        store.Key
	here, anywhere bool
}

// wantsServices reports whether an object has ranges of Services.
func (o *objects) wantsServices() bool {
	for key, raw := range o.raw {
		if key.Kind == "BGPConfiguration" && bytes.Contains(raw, []byte(`"service`)) {
			return true
		}
	}
	return false
}

// put applies an event, and reports whether something has changed. Of an object that cannot be read the last version stays.
func (s *services) put(e store.Event) bool {
	key := e.Object.Key
	switch {
	case e.Type == store.Synced:
		s.known = true
		return true
	case e.Type == store.Faulty:
		return false
	case e.Type == store.Deleted:
		_, a := s.all[key]
		_, b := s.slices[key]
		delete(s.all, key)
		delete(s.slices, key)
		return a || b
	case key.Of(store.EndpointSlices()):
		now, ok := s.readSlice(e.Object)
		if !ok || s.slices[key] == now {
			return false
		}
		s.slices[key] = now
		return true
	}
	now, ok := readService(e.Object)
	if !ok {
		return false
	}
	old, had := s.all[key]
	s.all[key] = now
	return !had || !now.Equal(old)
}

func readService(o store.Object) (out model.BGPService, ok bool) {
	var in struct {
		Spec struct {
			ClusterIP   string   `json:"clusterIP"`
			ClusterIPs  []string `json:"clusterIPs"`
			ExternalIPs []string `json:"externalIPs"`
			Policy      string   `json:"externalTrafficPolicy"`
		} `json:"spec"`
		Status struct {
			LoadBalancer struct {
				Ingress []struct {
					IP string `json:"ip"`
				} `json:"ingress"`
			} `json:"loadBalancer"`
		} `json:"status"`
	}
	if json.Unmarshal(o.Raw, &in) != nil {
		return out, false
	}
	add := func(to *[]netip.Addr, text string) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(*to, a) { // "None" of a headless Service
			*to = append(*to, a)
		}
	}
	out.Local = in.Spec.Policy == "Local"
	for _, text := range append(in.Spec.ClusterIPs, in.Spec.ClusterIP) {
		add(&out.ClusterIPs, text)
	}
	if len(out.ClusterIPs) == 0 {
		return out, true
	}
	for _, text := range in.Spec.ExternalIPs {
		add(&out.ExternalIPs, text)
	}
	for _, i := range in.Status.LoadBalancer.Ingress {
		add(&out.LoadBalancerIPs, i.IP)
	}
	return out, true
}

func (s *services) readSlice(o store.Object) (out endpoints, ok bool) {
	service, nodes, ok := store.ReadyNodes(o)
	return endpoints{service: service, here: nodes[s.cfg.Node], anywhere: len(nodes) > 0}, ok
}

// announced returns the Services that have a ready endpoint and an address that may be announced by itself, in a stable
// order.
func (s *services) announced() (out []model.BGPService) {
	ready := map[store.Key]endpoints{}
	for _, e := range s.slices {
		r := ready[e.service]
		r.here, r.anywhere = r.here || e.here, r.anywhere || e.anywhere
		ready[e.service] = r
	}
	byName := make(map[string]model.BGPService, len(s.all))
	for key, one := range s.all {
		if r := ready[key]; r.anywhere && len(one.ClusterIPs) > 0 && (one.Local || len(one.LoadBalancerIPs) > 0) {
			one.Here = r.here
			byName[key.String()] = one
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

// watch sends the events of kinds until ctx ends.
func watch(ctx context.Context, cfg Config, to chan<- store.Event, kinds ...store.Kind) {
	for logged := false; ctx.Err() == nil; logged = true {
		events, err := cfg.Objects.Watch(ctx, kinds...)
		if err != nil {
			if !logged {
				cfg.Log.Error("objects cannot be watched; it is tried again", "kind", kinds[0].Kind, "err", err)
			}
			select {
			case <-cfg.After(redial):
			case <-ctx.Done():
			}
			continue
		}
		for e := range events {
			select {
			case to <- e:
			case <-ctx.Done():
				return
			}
		}
	}
}

// checkRights reports the first of kinds that the agent may not watch. Without an answer nothing is reported.
func checkRights(ctx context.Context, cfg Config, denied chan<- store.Kind, kinds ...store.Kind) {
	for _, kind := range kinds {
		if may, err := store.MayWatch(ctx, cfg.Objects, kind); err == nil && !may {
			denied <- kind
			return
		}
	}
}
