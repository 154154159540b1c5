// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// endpoints are this node's: which chains each of them goes by. An endpoint about which something has changed is
// dirty, and looked at again when it is settled.
type endpoints struct {
	cluster  *cluster
	compiler *compiler
	tables   *tables
	all      map[model.EndpointKey]*endpoint
	byAddr   map[netip.Addr][]*endpoint
	byLink   map[claim][]*endpoint // nearly always one
	dirty    map[*endpoint]bool
}

// claim is an interface in a place, which endpoints claim to be.
type claim struct {
	table *table
	link  string
}

func newEndpoints(c *cluster, m *compiler, ts *tables) *endpoints {
	return &endpoints{
		cluster: c, compiler: m, tables: ts,
		all: map[model.EndpointKey]*endpoint{}, byAddr: map[netip.Addr][]*endpoint{}, byLink: map[claim][]*endpoint{},
		dirty: map[*endpoint]bool{},
	}
}

// add starts to enforce policy on an endpoint.
func (es *endpoints) add(in model.WorkloadEndpoint) {
	e := &endpoint{WorkloadEndpoint: in}
	e.table = es.tables.at(e.place())
	e.table.users++
	es.all[in.Key()] = e
	at := claim{e.table, e.link()}
	es.byLink[at] = append(es.byLink[at], e)
	for _, a := range in.Addrs {
		es.byAddr[a] = append(es.byAddr[a], e)
	}
	es.cluster.pods.localPod(in.Key(), 1)
	es.dirty[e] = true
}

// remove stops to enforce policy on an endpoint.
func (es *endpoints) remove(e *endpoint) {
	es.cluster.pods.localPod(e.Key(), -1)
	at := claim{e.table, e.link()}
	if es.byLink[at] = slices.DeleteFunc(es.byLink[at], func(o *endpoint) bool {
		return o == e
	}); len(es.byLink[at]) == 0 {
		delete(es.byLink, at)
	}
	e.table.users--
	es.updateMaps(at)
	for _, dir := range directions() {
		if e.chains[dir] != nil {
			e.table.dropChain(e.chains[dir].name)
		}
	}
	for _, a := range e.Addrs {
		if es.byAddr[a] = slices.DeleteFunc(es.byAddr[a], func(o *endpoint) bool { return o == e }); len(es.byAddr[a]) == 0 {
			delete(es.byAddr, a)
		}
	}
	delete(es.all, e.Key())
	delete(es.dirty, e)
}

// markPod marks a pod's endpoints dirty.
func (es *endpoints) markPod(namespace, name string) {
	if p := es.cluster.pods.pod(namespace, name); p == nil || p.locals == 0 {
		return
	}
	for e := range es.of(namespace, name) {
		es.dirty[e] = true
	}
}

// markNamespace marks a namespace's endpoints dirty.
func (es *endpoints) markNamespace(name string) {
	for _, e := range es.all {
		if e.Pod.Namespace == name {
			es.dirty[e] = true
		}
	}
}

// markPolicy marks the endpoints dirty that a policy selects or did select; was and is may be nil.
func (es *endpoints) markPolicy(key model.PolicyKey, was, is *policy) {
	for _, e := range es.all {
		if key.Namespace != "" && e.Pod.Namespace != key.Namespace {
			continue
		}
		if was.mightSelect(e.pod) || is.mightSelect(e.pod) {
			es.dirty[e] = true
		}
	}
}

// updateDirty updates the chains of dirty endpoints to the policies that select them now.
func (es *endpoints) updateDirty() {
	for e := range es.dirty {
		es.updateOne(e)
	}
	clear(es.dirty)
}

func (es *endpoints) updateOne(e *endpoint) {
	e.pod = nil
	if p := es.cluster.pods.pod(e.Pod.Namespace, e.Pod.Name); p != nil && p.identity != nil &&
		(e.Pod.UID == "" || p.uid == 0 || p.uid == hashUID(e.Pod.UID)) {
		e.pod = p
	}
	for _, dir := range directions() {
		was, is := e.chains[dir], es.compiler.chainOf(e.subject(), dir)
		if is != nil {
			e.table.useChain(is)
		}
		if was != nil {
			e.table.dropChain(was.name)
		}
		e.chains[dir] = is
	}
	es.updateMaps(claim{e.table, e.link()})
}

// updateMaps updates an interface's verdicts in the maps of its table.
func (es *endpoints) updateMaps(at claim) {
	best := es.chosen(at)
	for _, dir := range directions() {
		is := ""
		if best != nil && best.chains[dir] != nil {
			is = "goto " + best.chains[dir].name
		}
		at.table.setLink(at.link, dir, is)
	}
}

// chosen returns the endpoint of an interface that several claim: that of the current pod.
func (es *endpoints) chosen(at claim) *endpoint {
	var best *endpoint
	for _, e := range es.byLink[at] {
		if best == nil || e.before(best) {
			best = e
		}
	}
	return best
}

// of iterates over the endpoints of a pod.
func (es *endpoints) of(namespace, name string) func(yield func(*endpoint) bool) {
	return func(yield func(*endpoint) bool) {
		for _, e := range es.all {
			if e.Pod.Namespace == namespace && e.Pod.Name == name && !yield(e) {
				return
			}
		}
	}
}

// selected reports whether policies select an endpoint, in any direction.
func (es *endpoints) selected(key model.EndpointKey) bool {
	e := es.all[key]
	return e != nil && (e.chains[ingress] != nil || e.chains[egress] != nil)
}

// conntrackPeers returns the addresses of the endpoints of a place that policies select.
func (es *endpoints) conntrackPeers(p EnforcementPoint) []state.ConntrackPeer {
	var out []state.ConntrackPeer
	for _, e := range es.all {
		if e.table.place != p {
			continue
		}
		begins, answers := e.chains[egress] != nil, e.chains[ingress] != nil
		for _, a := range e.Addrs {
			if begins || answers {
				out = append(out, state.ConntrackPeer{Addr: a, Originates: begins, Responds: answers})
			}
		}
	}
	slices.SortFunc(out, func(a, b state.ConntrackPeer) int { return a.Addr.Compare(b.Addr) })
	return out
}
