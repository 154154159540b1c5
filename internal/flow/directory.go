// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

// Directory has the names of all nodes' addresses, over time: agents know only their own. It is not safe for concurrent
// use.
type Directory struct {
	nodes    map[netip.Addr]string
	services map[netip.Addr]string
	pools    []poolRange
	held     map[address][]held   // the oldest first
	labels   map[string][]labeled // of pods, the oldest first
}

// address is an address of a network; "" is the cluster's.
type address struct {
	network string
	addr    netip.Addr
}

// poolRange is a range of a pool of the cluster's network.
type poolRange struct {
	netip.Prefix
	pool string
}

// held is a holder from a time on; without a kind: none.
type held struct {
	from time.Time
	Identity
}

// labeled are a pod's labels from a time on.
type labeled struct {
	from time.Time
	LabelSet
}

// maxHeld is how many holders of an address are remembered, and maxLabeled how many sets of labels of a pod.
const maxHeld, maxLabeled = 4, 64

// NewDirectory returns an empty directory.
func NewDirectory() *Directory {
	return &Directory{
		nodes: map[netip.Addr]string{}, services: map[netip.Addr]string{}, held: map[address][]held{},
		labels: map[string][]labeled{},
	}
}

// AddNode adds addresses of a node, and AddService those of a Service (namespace/name).
func (d *Directory) AddNode(name string, addrs ...netip.Addr) {
	for _, a := range addrs {
		d.nodes[a] = name
	}
}

// AddService adds addresses of a Service (namespace/name).
func (d *Directory) AddService(name string, addrs ...netip.Addr) {
	for _, a := range addrs {
		d.services[a] = name
	}
}

// AddPool adds a range of a pool of the cluster's network.
func (d *Directory) AddPool(name string, of netip.Prefix) {
	d.pools = append(d.pools, poolRange{of, name})
}

// pool returns the pool with the smallest range that has an address.
func (d *Directory) pool(a netip.Addr) (best poolRange, ok bool) {
	for _, p := range d.pools {
		if p.Contains(a) && (!ok || p.Bits() > best.Bits()) {
			best, ok = p, true
		}
	}
	return best, ok
}

// AddHolder adds a change that an agent reported.
func (d *Directory) AddHolder(h Holder) {
	at := address{h.Network, h.Addr}
	next := held{from: h.Time}
	if h.Identity != nil {
		d.addLabels(*h.Identity, h.Time)
		next.Identity = *h.Identity
		next.Labels = LabelSet{}
	}
	all := d.held[at]
	if n := len(all); n > 0 && all[n-1].Identity == next.Identity {
		return
	}
	// A VM that has migrated is announced by its new node, and after that the old one reports that it is gone.
	if n := len(all); n > 0 && h.Identity == nil && next.from.Before(all[n-1].from) {
		return
	}
	all = append(all, next)
	d.held[at] = all[max(0, len(all)-maxHeld):]
}

// AddLabels adds the labels that a flow's node reports of its own pods: agents send no others of the past.
func (d *Directory) AddLabels(r *Record) {
	for _, e := range []*Endpoint{&r.From, &r.To, r.Via} {
		if e != nil && e.Node == r.Node {
			d.addLabels(e.Identity, r.Time)
		}
	}
}

func (d *Directory) addLabels(id Identity, at time.Time) {
	if !id.isPod() || !id.Labels.Known() {
		return
	}
	pod := id.podName()
	all := d.labels[pod]
	i := len(all)
	for i > 0 && all[i-1].from.After(at) {
		i--
	}
	switch {
	case i > 0 && all[i-1].LabelSet == id.Labels:
	case i < len(all) && all[i].LabelSet == id.Labels:
		all[i].from = at
	default:
		all = slices.Insert(all, i, labeled{at, id.Labels})
		d.labels[pod] = all[max(0, len(all)-maxLabeled):]
	}
}

// labelsAt returns the labels that a pod had at a time; before the first ones that are known it is those.
func (d *Directory) labelsAt(pod string, at time.Time) LabelSet {
	all := d.labels[pod]
	for _, l := range slices.Backward(all) {
		if !l.from.After(at) {
			return l.LabelSet
		}
	}
	if len(all) > 0 {
		return all[0].LabelSet
	}
	return LabelSet{}
}

// Labels are all sets of labels that pods have, and have had, as far as agents have reported them.
func (d *Directory) Labels() iter.Seq[LabelSet] {
	return func(yield func(LabelSet) bool) {
		for _, all := range d.labels {
			for _, l := range all {
				if !yield(l.LabelSet) {
					return
				}
			}
		}
	}
}

// Lookup returns what held an address at a time, or last before that: in the network, else in the cluster's.
func (d *Directory) Lookup(network string, a netip.Addr, at time.Time) (Identity, bool) {
	return d.lookup(network, a, at, true)
}

func (d *Directory) lookup(network string, a netip.Addr, at time.Time, earlier bool) (Identity, bool) {
	for _, n := range []string{network, ""} {
		if id, ok := d.at(address{n, a}, at, earlier); ok {
			return id, true
		}
	}
	if name := d.services[a]; name != "" {
		return Identity{Kind: ServiceEnd, Name: name}, true
	}
	if name := d.nodes[a]; name != "" {
		return Identity{Kind: NodeEnd, Name: name, Node: name}, true
	}
	return Identity{}, false
}

// linger is how long new connections have the name of a holder that is gone: clocks differ, and agents report later.
const linger = 10 * time.Second

// at returns the last holder that the address had at a time; of a connection that did not begin earlier none that had gone
// long before. Before the first one that is known it is that one.
func (d *Directory) at(p address, at time.Time, earlier bool) (Identity, bool) {
	all := d.held[p]
	for _, h := range slices.Backward(all) {
		switch {
		case h.from.After(at):
		case h.Kind != "":
			return h.Identity, true
		case !earlier && at.Sub(h.from) >= linger:
			return Identity{}, false
		}
	}
	for _, h := range all {
		if h.Kind != "" {
			return h.Identity, true
		}
	}
	return Identity{}, false
}

// Complete names the ends of a flow that its node did not know, or that are another node's.
func (d *Directory) Complete(r *Record) {
	network := r.From.Network
	if network == "" {
		network = r.To.Network
	}
	defer d.label(r)
	for _, e := range []*Endpoint{&r.From, &r.To, r.Via} {
		// A node knows pods of others only by hearsay: not that they run a VM, and not when they changed.
		if e == nil || e.Kind != OutsideEnd && (e.Kind != PodEnd || e.Node == r.Node) {
			continue
		}
		if id, ok := d.lookup(network, e.Addr, r.Time, r.Kind == End || r.Kind == Tracked || r.Kind == Update); ok {
			e.Identity = id
			continue
		}
		if p, ok := d.pool(e.Addr); ok && e.Kind == OutsideEnd && network == "" {
			e.Identity = Identity{Kind: PoolEnd, Name: p.pool}
		}
	}
}

// label adds the labels of pods of which the flow's node has not reported them.
func (d *Directory) label(r *Record) {
	for _, e := range []*Endpoint{&r.From, &r.To, r.Via} {
		if e != nil && e.isPod() && !e.Labels.Known() {
			e.Labels = d.labelsAt(e.podName(), r.Time)
		}
	}
}

// Identities are all that it knows; those that are gone, too, as long as they are remembered.
func (d *Directory) Identities() iter.Seq[Identity] {
	return func(yield func(Identity) bool) {
		for _, all := range d.held {
			for _, h := range all {
				if h.Kind != "" && !yield(h.Identity) {
					return
				}
			}
		}
		for _, name := range d.nodes {
			if !yield(Identity{Kind: NodeEnd, Name: name, Node: name}) {
				return
			}
		}
		for _, name := range d.services {
			if !yield(Identity{Kind: ServiceEnd, Name: name}) {
				return
			}
		}
	}
}

// Holders are the endpoints that have an address now.
func (d *Directory) Holders() iter.Seq[Holder] {
	return func(yield func(Holder) bool) {
		for at, all := range d.held {
			h := all[len(all)-1]
			if h.Kind != "" && !yield(Holder{Time: h.from, Addr: at.addr, Network: at.network, Identity: &h.Identity}) {
				return
			}
		}
	}
}
