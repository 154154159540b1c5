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

// Migration is the progress of moving pods from one pool to another.
type Migration struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Disabled: this run has disabled From.
	Disabled bool `json:"disabled"`
	// Pods still have addresses of From.
	Pods []MigratingPod `json:"pods"`
	// Blocks counts From's blocks with an affinity to a node; Reserved counts its reserved addresses.
	Blocks   int `json:"blocks"`
	Reserved int `json:"reserved"`
	// Deleted: From was empty and was deleted.
	Deleted bool `json:"deleted"`
}

// MigratingPod is a pod that must be re-created to get an address of the other pool.
type MigratingPod struct {
	Pod  string     `json:"pod"`
	Node string     `json:"node"`
	Addr netip.Addr `json:"address"`
}

// Done reports whether the old pool is empty.
func (m Migration) Done() bool { return len(m.Pods) == 0 && m.Blocks == 0 && m.Reserved == 0 }

// Migrate disables a pool and returns the pods that still have addresses of it; once re-created they get addresses of
// the other pool. A dry run writes nothing; with remove the old pool is deleted once it is empty.
func Migrate(
	ctx context.Context, objects store.Objects, from, to string, dryRun, remove bool, now time.Time,
) (Migration, error) {
	m := Migration{From: from, To: to, Pods: []MigratingPod{}}
	s, err := readPools(ctx, objects, now)
	if err != nil {
		return m, err
	}
	if err := s.checkMigration(from, to); err != nil {
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
				m.Pods = append(m.Pods, MigratingPod{pod, pods.Node(pod), a})
			}
		}
	}
	m.Blocks, m.Reserved = s.blockCount(from), len(spec.Reserved)
	if dryRun {
		return m, nil
	}
	if !spec.Disabled {
		spec.Disabled = true
		kept, err := editPool(ctx, objects, s.pools[from], spec)
		if err != nil {
			return m, err
		}
		s.set(kept)
		m.Disabled = true
	}
	if remove && m.Done() {
		if err := s.removePool(ctx, &m); err != nil {
			return m, err
		}
	}
	return m, nil
}

// removePool deletes the old pool if it is unchanged. Nodes may have claimed blocks until it was disabled, so the
// blocks are counted again.
func (s *poolState) removePool(ctx context.Context, m *Migration) error {
	later, err := readPools(ctx, s.objects, s.conditions.now)
	if err != nil {
		return err
	}
	if m.Blocks = later.blockCount(m.From); m.Blocks > 0 {
		return nil
	}
	was := s.pools[m.From]
	switch err := s.objects.Delete(ctx, store.AddressPools(), was.Key, was.Version); {
	case errors.Is(err, store.ErrConflict):
		return model.Errorf(model.CodeTryAgain, "run it again", "pool %q was changed meanwhile: %w", m.From, err)
	case err != nil:
		return fmt.Errorf("pool %s: %w", m.From, err)
	}
	m.Deleted = true
	return nil
}

// checkMigration returns an error if pods cannot migrate from one pool to another.
func (s *poolState) checkMigration(from, to string) error {
	for _, name := range []string{from, to} {
		if err := s.invalid[name]; err != nil {
			return err
		}
		p, there := s.specs[name]
		if !there {
			return model.Errorf(model.CodeInvalidConf, "`weft ipam show` lists the pools", "there is no pool %q", name)
		}
		if !p.IsClusterPool() {
			return model.Errorf(
				model.CodeInvalidConf, "name the other pool in that network's configuration, then re-create its pods",
				"pool %q is not one of the cluster's network", name)
		}
	}
	if from == to {
		return model.Errorf(model.CodeInvalidConf, "name another pool behind --to", "pool %q is the pool itself", to)
	}
	if at := annotation(s.pools[from], From); at != "" {
		return model.Errorf(model.CodeInvalidConf,
			fmt.Sprintf("disable it there, or make it independent: kubectl annotate addresspool %s %s-", from, From),
			"pool %q mirrors Calico's (%s)", from, at)
	}
	all := s.sorted()
	if c := model.PoolConditions(all)[to]; !c.True {
		return model.Errorf(model.CodeInvalidConf, "fix it first", "pool %q has no allocatable addresses: %s", to, c.Message)
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
			return model.Errorf(model.CodeInvalidConf, "add a region of that family to it",
				"pool %q has no %s addresses, and pool %q has", to, family(v6), from)
		}
	}
	return nil
}

func family(v6 bool) string { return map[bool]string{false: "IPv4", true: "IPv6"}[v6] }

// AddressReport is what the cluster's objects contain about one address.
type AddressReport struct {
	Addr  netip.Addr `json:"address"`
	Lines []string   `json:"says"`
}

// FindAddress returns what the cluster's objects contain about an address.
func FindAddress(ctx context.Context, objects store.Objects, a netip.Addr) (AddressReport, error) {
	w := AddressReport{Addr: a, Lines: []string{}}
	s, err := readPools(ctx, objects, time.Time{})
	if err != nil {
		return w, err
	}
	pods, err := audit.ReadPods(ctx, objects)
	if err != nil {
		return w, err
	}
	add := func(format string, args ...any) { w.Lines = append(w.Lines, fmt.Sprintf(format, args...)) }
	for _, p := range s.sorted() {
		for _, r := range p.Regions {
			if r.CIDR.Contains(a) {
				add("pool %s, region %s, block %s", p.Name, r.CIDR, netip.PrefixFrom(a, r.BlockSize).Masked())
			}
		}
		for _, r := range p.Reserved {
			if r.Addr == a {
				add("reserved in pool %s for %s%s", p.Name, orDefault(r.Owner, "an unknown owner"), by(r.Source))
			}
		}
		for _, r := range p.Excluded {
			if r.CIDR.Contains(a) {
				add("excluded in pool %s by %s for %s%s", p.Name, r.CIDR, orDefault(r.Reason, "an unknown owner"), by(r.Source))
			}
		}
	}
	for _, b := range s.blocks {
		if !b.CIDR.Contains(a) {
			continue
		}
		add("block %s of pool %s has affinity to node %s", b.CIDR, b.Pool, b.Node)
		if with, lent := b.Lent[a]; lent {
			node, _, _ := strings.Cut(with, "/")
			add("lent to node %s", orDefault(node, "any that claims it"))
		}
	}
	for _, pod := range pods.Having(a) {
		add("in use by pod %s on node %s", pod, orDefault(pods.Node(pod), "unknown"))
	}
	if len(w.Lines) == 0 {
		add("outside of every pool, and not in use by a pod")
	}
	return w, nil
}

func orDefault(s, otherwise string) string {
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
