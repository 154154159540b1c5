// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// compareBlocks sorts blocks as facts have them.
func compareBlocks(a, b model.AddressBlock) int {
	return cmp.Or(a.CIDR.Addr().Compare(b.CIDR.Addr()), a.CIDR.Bits()-b.CIDR.Bits(), strings.Compare(a.Pool, b.Pool))
}

// sameBlock compares what the plan depends on.
func sameBlock(a, b *model.AddressBlock) bool {
	return a.CIDR == b.CIDR && a.Pool == b.Pool && a.Node == b.Node && maps.Equal(a.Lent, b.Lent)
}

// blockChanges adds to changed nodes those whose blocks or borrowed addresses have changed, and returns the blocks of
// all changed nodes; false if they are too many, if self is among them, or if there is a contradiction.
func (v *Previous) blockChanges(c *model.Cluster, changes []nodeChange) ([]nodeChange, pools, bool) {
	affected := map[string]bool{}
	for _, change := range changes {
		affected[change.name()] = true
	}
	changed := 0
	add := func(b *model.AddressBlock) {
		changed++
		affected[b.Node] = true
		for _, borrower := range b.Lent {
			if holder, _, _ := strings.Cut(borrower, "/"); holder != "" {
				affected[holder] = true
			}
		}
	}
	if !slices.IsSortedFunc(c.Blocks, compareBlocks) || !diffBlocks(v.cluster.Blocks, c.Blocks, add, &changed) {
		return nil, pools{}, false
	}
	if affected[c.Self] || len(affected) > maxAdvance {
		return nil, pools{}, false
	}
	held, ok := v.heldBy(c, affected)
	if !ok {
		return nil, pools{}, false
	}
	for _, change := range changes {
		delete(affected, change.name())
	}
	for _, name := range slices.Sorted(maps.Keys(affected)) { // as nodes they have not changed
		n, ok := findNode(c.Nodes, name)
		if !ok {
			return nil, pools{}, false
		}
		changes = append(changes, nodeChange{n, n})
	}
	return changes, held, true
}

// diffBlocks visits the blocks that differ, before and after; false if they are too many.
func diffBlocks(old, now []model.AddressBlock, visit func(*model.AddressBlock), visited *int) bool {
	i, j := 0, 0
	for (i < len(old) || j < len(now)) && *visited <= 2*maxAdvance {
		order := 0
		switch {
		case i == len(old):
			order = 1
		case j == len(now):
			order = -1
		case &old[i] != &now[j]:
			order = compareBlocks(old[i], now[j])
		}
		switch {
		case order < 0:
			visit(&old[i])
			i++
		case order > 0:
			visit(&now[j])
			j++
		default:
			if !sameBlock(&old[i], &now[j]) {
				visit(&old[i])
				visit(&now[j])
			}
			i, j = i+1, j+1
		}
	}
	return *visited <= 2*maxAdvance
}

// heldBy returns the blocks and the borrowed addresses of some nodes; false if one of these blocks is invalid.
func (v *Previous) heldBy(c *model.Cluster, names map[string]bool) (pools, bool) {
	part := model.Cluster{Pools: c.Pools}
	known := map[string]bool{}
	know := func(name string) {
		if n, ok := findNode(c.Nodes, name); ok && !known[name] {
			known[name] = true
			part.Nodes = append(part.Nodes, *n)
		}
	}
	for name := range names {
		know(name)
	}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		concerns := names[b.Node]
		for _, borrower := range b.Lent {
			holder, _, _ := strings.Cut(borrower, "/")
			concerns = concerns || names[holder]
		}
		if concerns {
			know(b.Node)
			part.Blocks = append(part.Blocks, *b)
		}
	}
	held, problems := gatherPools(&part, v.cfg)
	return held, len(problems) == 0
}

func findNode(nodes []model.Node, name string) (*model.Node, bool) {
	i, ok := slices.BinarySearchFunc(nodes, name, func(n model.Node, name string) int {
		return strings.Compare(n.Name, name)
	})
	if !ok {
		return nil, false
	}
	return &nodes[i], true
}

func (c nodeChange) name() string {
	if c.is != nil {
		return c.is.Name
	}
	return c.was.Name
}

// dropFromTunnels removes a peer from the tunnels.
func (a *advance) dropFromTunnels(i int) bool {
	name := a.topology.Peers[i].Name
	for t := range a.topology.Tunnels {
		tunnel := &a.topology.Tunnels[t]
		from, to := tunnel.peersOf(name)
		tunnel.Peers = slices.Concat(tunnel.Peers[:from], tunnel.Peers[to:])
		if len(tunnel.Peers) == 0 {
			tunnel.Peers = nil // as the whole plan has it
		}
		if tunnel.Sources == nil {
			continue
		}
		sources := *tunnel.Sources
		tunnel.Sources = &sources
		if len(a.topology.Peers[i].Addrs) > 0 {
			at := a.senderIndex(i)
			if at >= len(sources.Senders) || !slices.Equal(sources.Senders[at].Addrs, a.topology.Peers[i].Addrs) {
				return false
			}
			if sources.Senders = slices.Concat(sources.Senders[:at], sources.Senders[at+1:]); len(sources.Senders) == 0 {
				sources.Senders = nil
			}
		}
	}
	return true
}

// addToTunnels adds the peer with index i to the tunnels; false if the whole plan has a problem with it.
func (a *advance) addToTunnels(n model.Node, i int, parts []Tunnel) bool {
	for _, part := range parts {
		at := slices.IndexFunc(a.topology.Tunnels, func(t Tunnel) bool { return t.Link == part.Link })
		if at < 0 {
			return false
		}
		tunnel := &a.topology.Tunnels[at]
		for _, p := range part.Peers {
			if p.PublicKey != "" && slices.ContainsFunc(tunnel.Peers, func(o TunnelPeer) bool { return o.PublicKey == p.PublicKey }) {
				return false
			}
		}
		from, _ := tunnel.peersOf(n.Name)
		tunnel.Peers = slices.Concat(tunnel.Peers[:from], part.Peers, tunnel.Peers[from:])
	}
	addrs := addrsOf(n)
	for t := range a.topology.Tunnels {
		tunnel := &a.topology.Tunnels[t]
		if tunnel.Sources == nil || len(addrs) == 0 {
			continue
		}
		sources := *tunnel.Sources
		tunnel.Sources = &sources
		one := guard{p: a.planner, nodes: []model.Node{n}}
		at := a.senderIndex(i)
		if at > len(sources.Senders) {
			return false
		}
		sources.Senders = slices.Concat(sources.Senders[:at], []Sender{{addrs, one.allowedSources(n, addrs)}},
			sources.Senders[at:])
	}
	return true
}

// peersOf returns the range of a node's entries, which are sorted by node.
func (t *Tunnel) peersOf(name string) (from, to int) {
	from, _ = slices.BinarySearchFunc(t.Peers, name, func(p TunnelPeer, name string) int {
		return strings.Compare(p.Node, name)
	})
	for to = from; to < len(t.Peers) && t.Peers[to].Node == name; to++ {
	}
	return from, to
}

// senderIndex returns the index of a peer among the senders: those without addresses are left out.
func (a *advance) senderIndex(i int) int {
	out := 0
	for _, p := range a.topology.Peers[:i] {
		if len(p.Addrs) > 0 {
			out++
		}
	}
	return out
}

// setSourcesCluster makes the clusters of the tunnels' sources those of the guard's sets, which are the same.
func (a *advance) setSourcesCluster() bool {
	for t := range a.topology.Tunnels {
		sources := a.topology.Tunnels[t].Sources
		if sources == nil || sources.Cluster == nil {
			continue
		}
		var all []netip.Prefix
		for _, name := range []string{"cluster4", "cluster6"} {
			s := a.set(name)
			if s == nil {
				return false
			}
			for _, e := range s.Elements {
				p, err := netip.ParsePrefix(e.Key[0])
				if err != nil {
					return false
				}
				all = append(all, p)
			}
		}
		changed := *sources
		changed.Cluster = all
		a.topology.Tunnels[t].Sources = &changed
	}
	return true
}
