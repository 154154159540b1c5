// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

// Migration is how far the pods of one pool have gone to another.
type Migration struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Disabled: this run made From give nothing further.
	Disabled bool `json:"disabled"`
	// Pods still have addresses of From, each "namespace/name" with its node and address.
	Pods []Migrant `json:"pods"`
	// Blocks are how many blocks of From nodes still have; Reserved is how many of its addresses are reserved.
	Blocks   int `json:"blocks"`
	Reserved int `json:"reserved"`
	// Deleted: nothing was left, and From is gone.
	Deleted bool `json:"deleted"`
}

// Migrant is a pod that is still to be made anew.
type Migrant struct {
	Pod  string     `json:"pod"`
	Node string     `json:"node"`
	Addr netip.Addr `json:"address"`
}

// Done tells whether nothing is left in the old pool.
func (m Migration) Done() bool { return len(m.Pods) == 0 && m.Blocks == 0 && m.Reserved == 0 }

// Migrate has a pool give nothing further, and says which pods still have addresses of it: made anew they get some of
// the other pool. A dry run writes nothing; with remove the old pool goes when nothing is left.
func Migrate(
	ctx context.Context, objects store.Objects, from, to string, dry, remove bool, now time.Time,
) (Migration, error) {
	m := Migration{From: from, To: to, Pods: []Migrant{}}
	s, err := look(ctx, objects, now)
	if err != nil {
		return m, err
	}
	if err := s.migratable(from, to); err != nil {
		return m, err
	}
	pods, err := audit.ReadPods(ctx, objects)
	if err != nil {
		return m, err
	}
	spec := s.specs[from]
	for _, r := range spec.Regions {
		in := pods.In(r.CIDR)
		for _, a := range sortedAddrs(in) {
			for _, pod := range in[a] {
				m.Pods = append(m.Pods, Migrant{pod, pods.Node(pod), a})
			}
		}
	}
	m.Blocks, m.Reserved = s.held(from), len(spec.Reserved)
	if dry {
		return m, nil
	}
	if !spec.Disabled {
		spec.Disabled = true
		kept, err := editPool(ctx, objects, s.pools[from], spec)
		if err != nil {
			return m, err
		}
		s.take(kept)
		m.Disabled = true
	}
	if remove && m.Done() {
		if err := s.removePool(ctx, &m); err != nil {
			return m, err
		}
	}
	return m, nil
}

// removePool deletes the old pool as it was seen. Nodes may have claimed blocks of it until it was disabled: so they
// are counted once more.
func (s *scene) removePool(ctx context.Context, m *Migration) error {
	later, err := look(ctx, s.objects, s.now)
	if err != nil {
		return err
	}
	if m.Blocks = later.held(m.From); m.Blocks > 0 {
		return nil
	}
	was := s.pools[m.From]
	switch err := s.objects.Delete(ctx, store.AddressPools(), was.Key, was.Version); {
	case errors.Is(err, store.ErrConflict):
		return model.Faultf(model.CodeTryAgain, "run it again", "pool %q was changed meanwhile: %w", m.From, err)
	case err != nil:
		return fmt.Errorf("pool %s: %w", m.From, err)
	}
	m.Deleted = true
	return nil
}

// migratable tells whether pods can go from one pool to another.
func (s *scene) migratable(from, to string) error {
	for _, name := range []string{from, to} {
		if err := s.broken[name]; err != nil {
			return err
		}
		p, there := s.specs[name]
		if !there {
			return model.Faultf(model.CodeInvalidConf, "`weft ipam show` lists the pools", "there is no pool %q", name)
		}
		if !p.OfCluster() {
			return model.Faultf(
				model.CodeInvalidConf, "name the other pool in that network's configuration, then make its pods anew",
				"pool %q is not one of the cluster's network", name)
		}
	}
	if from == to {
		return model.Faultf(model.CodeInvalidConf, "name another pool behind --to", "pool %q is the pool itself", to)
	}
	if at := annotation(s.pools[from], From); at != "" {
		return model.Faultf(model.CodeInvalidConf,
			fmt.Sprintf("disable it there, or make it weft's own: kubectl annotate addresspool %s %s-", from, From),
			"pool %q follows Calico's (%s)", from, at)
	}
	all := s.sorted()
	if c := model.PoolConditions(all)[to]; !c.True {
		return model.Faultf(model.CodeInvalidConf, "put it right first", "pool %q gives no addresses: %s", to, c.Message)
	}
	for _, v6 := range []bool{false, true} {
		has := func(name string) bool {
			return slices.ContainsFunc(s.specs[name].Regions, func(r model.AddressRegion) bool {
				return r.CIDR.Addr().Is6() == v6
			})
		}
		if has(from) && !has(to) && !slices.ContainsFunc(all, func(p model.AddressPool) bool {
			return p.Name != from && p.AssignmentMode == model.AssignAutomatic && !p.Disabled && has(p.Name)
		}) {
			return model.Faultf(model.CodeInvalidConf, "add a region of that family to it",
				"pool %q has no %s addresses, and pool %q has", to, family(v6), from)
		}
	}
	return nil
}

func family(v6 bool) string { return map[bool]string{false: "IPv4", true: "IPv6"}[v6] }

// Whereabouts is all that is known of one address.
type Whereabouts struct {
	Addr  netip.Addr `json:"address"`
	Lines []string   `json:"says"`
}

// Find says all that the cluster's objects say of an address.
func Find(ctx context.Context, objects store.Objects, a netip.Addr) (Whereabouts, error) {
	w := Whereabouts{Addr: a, Lines: []string{}}
	s, err := look(ctx, objects, time.Time{})
	if err != nil {
		return w, err
	}
	pods, err := audit.ReadPods(ctx, objects)
	if err != nil {
		return w, err
	}
	say := func(format string, args ...any) { w.Lines = append(w.Lines, fmt.Sprintf(format, args...)) }
	for _, p := range s.sorted() {
		for _, r := range p.Regions {
			if r.CIDR.Contains(a) {
				say("pool %s, region %s, block %s", p.Name, r.CIDR, netip.PrefixFrom(a, r.BlockSize).Masked())
			}
		}
		for _, r := range p.Reserved {
			if r.Addr == a {
				say("reserved in pool %s for %s%s", p.Name, words(r.For, "nobody"), by(r.By))
			}
		}
		for _, r := range p.Excluded {
			if r.CIDR.Contains(a) {
				say("kept back in pool %s as a part of %s for %s%s", p.Name, r.CIDR, words(r.For, "nobody"), by(r.By))
			}
		}
	}
	for _, b := range s.blocks {
		if !b.CIDR.Contains(a) {
			continue
		}
		say("block %s of pool %s is node %s's", b.CIDR, b.Pool, b.Node)
		if with, ceded := b.Ceded[a]; ceded {
			node, _, _ := strings.Cut(with, "/")
			say("ceded to node %s", words(node, "whoever takes it"))
		}
	}
	for _, pod := range pods.Having(a) {
		say("pod %s on node %s says that it has it", pod, words(pods.Node(pod), "unknown"))
	}
	if len(w.Lines) == 0 {
		say("outside every pool, and no pod says that it has it")
	}
	return w, nil
}

func words(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " (by " + who + ")"
}
