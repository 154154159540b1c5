// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/flow"
)

// place is an address of a network; "" is the cluster's.
type place struct {
	network string
	addr    netip.Addr
}

// moment is when something happened that is named.
type moment struct {
	at time.Time
	// earlier: it is about a connection that began earlier, maybe when an address had another holder than now.
	earlier bool
}

// linger is how long new connections of an address that has lost its holder have that one's name: they may be reported
// later than it went.
const linger = 10 * time.Second

// holders are the addresses of this node's endpoints. The last holder of an address keeps its name, until there is another
// one, for connections that began before it went. It is not safe for concurrent use.
type holders struct {
	now map[place]flow.Identity
	// networks are those in which an address has, or had, a holder, in addition to the cluster's.
	networks map[netip.Addr][]string
	// past are those that are gone, with the order in which they went.
	past  map[place]pastHolder
	order []place
	// spaces are the endpoints' network namespaces.
	spaces map[uint64]bool
}

// pastHolder is a holder until a time.
type pastHolder struct {
	flow.Identity
	until time.Time
}

// maxPast is how many past holders are kept.
const maxPast = 4096

func newHolders() *holders {
	return &holders{
		now: map[place]flow.Identity{}, past: map[place]pastHolder{}, networks: map[netip.Addr][]string{},
	}
}

// set replaces the holders by those of records, with the labels of their pods, and returns the changes.
func (h *holders) set(node string, records []attach.Record, labels podLabels, at time.Time) []flow.Holder {
	next := map[place]flow.Identity{}
	h.spaces = map[uint64]bool{}
	for _, rec := range records {
		end, ok := rec.Endpoint()
		if !ok || rec.Standby {
			continue
		}
		id := flow.Identity{Kind: flow.PodEnd, Name: end.Pod.String(), Node: node, Network: end.Network}
		if end.VM || end.Tap {
			id.Kind, id.Pod = flow.VMEnd, id.Name
			if vm := rec.Request.VM(); vm != nil {
				id.Name = vm.Namespace + "/" + vm.Name
			}
		}
		h.spaces[end.NetnsID] = true
		known := labels.of(end)
		for _, a := range end.Addrs {
			p := place{end.Network, a}
			id.Labels = known
			if last := h.now[p]; !known.Known() && last.Name == id.Name && last.Pod == id.Pod {
				id.Labels = last.Labels // the pod's object is gone already
			}
			next[p] = id
		}
	}
	var changes []flow.Holder
	for p, id := range h.now {
		if _, stays := next[p]; !stays {
			h.past[p], h.order = pastHolder{id, at}, append(h.order, p)
			changes = append(changes, flow.Holder{Time: at, Addr: p.addr, Network: p.network})
		}
	}
	for p, id := range next {
		if h.now[p] != id {
			changes = append(changes, flow.Holder{Time: at, Addr: p.addr, Network: p.network, Identity: &id})
		}
	}
	if gone := len(h.order) - maxPast; gone > 0 {
		for _, p := range h.order[:gone] {
			delete(h.past, p)
		}
		h.order = slices.Clone(h.order[gone:])
	}
	h.now = next
	clear(h.networks)
	for _, known := range []iter.Seq[place]{maps.Keys(h.now), maps.Keys(h.past)} {
		for p := range known {
			if p.network != "" && !slices.Contains(h.networks[p.addr], p.network) {
				h.networks[p.addr] = append(h.networks[p.addr], p.network)
			}
		}
	}
	slices.SortFunc(changes, compareHolders)
	return changes
}

// all returns the current holders.
func (h *holders) all(at time.Time) []flow.Holder {
	out := make([]flow.Holder, 0, len(h.now))
	for p, id := range maps.All(h.now) {
		out = append(out, flow.Holder{Time: at, Addr: p.addr, Network: p.network, Identity: &id})
	}
	slices.SortFunc(out, compareHolders)
	return out
}

func compareHolders(a, b flow.Holder) int {
	if c := strings.Compare(a.Network, b.Network); c != 0 {
		return c
	}
	return a.Addr.Compare(b.Addr)
}

// of returns the holder of an address: in the network, else in the cluster's, else in any. It is passing if that is not so
// any more some time later.
func (h *holders) of(network string, addr netip.Addr, when moment) (id flow.Identity, known, passing bool) {
	if id, known = find(h, h.now, network, addr); known {
		return id, true, false
	}
	p, known := find(h, h.past, network, addr)
	if !known || !when.earlier && when.at.Sub(p.until) >= linger {
		return flow.Identity{}, false, false
	}
	return p.Identity, true, !when.earlier
}

// find finds an address in a map.
func find[V any](h *holders, all map[place]V, network string, addr netip.Addr) (v V, ok bool) {
	if v, ok = all[place{network, addr}]; ok {
		return v, true
	}
	if v, ok = all[place{"", addr}]; ok {
		return v, true
	}
	for _, n := range h.networks[addr] {
		if v, ok = all[place{n, addr}]; ok {
			return v, true
		}
	}
	return v, false
}
