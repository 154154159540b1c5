// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// endpoints are this node's: which chains each of them goes by. An endpoint about which something has changed is
// doubted, and looked at again when it is settled.
type endpoints struct {
	cluster  *cluster
	compiler *compiler
	tables   *tables
	all      map[model.EndpointKey]*endpoint
	byAddr   map[netip.Addr][]*endpoint
	byLink   map[claim][]*endpoint // nearly always one
	doubted  map[*endpoint]bool
}

// claim is an interface where a table is, as endpoints say that they are it.
type claim struct {
	table *table
	link  string
}

func newEndpoints(c *cluster, m *compiler, ts *tables) *endpoints {
	return &endpoints{
		cluster: c, compiler: m, tables: ts,
		all: map[model.EndpointKey]*endpoint{}, byAddr: map[netip.Addr][]*endpoint{}, byLink: map[claim][]*endpoint{},
		doubted: map[*endpoint]bool{},
	}
}

// add has an interface be judged.
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
	es.cluster.localPod(in.Key(), 1)
	es.doubted[e] = true
}

// remove has it be judged no more.
func (es *endpoints) remove(e *endpoint) {
	es.cluster.localPod(e.Key(), -1)
	at := claim{e.table, e.link()}
	if es.byLink[at] = slices.DeleteFunc(es.byLink[at], func(o *endpoint) bool {
		return o == e
	}); len(es.byLink[at]) == 0 {
		delete(es.byLink, at)
	}
	e.table.users--
	es.relink(at)
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
	delete(es.doubted, e)
}

// doubtPod has a pod's endpoints looked at again.
func (es *endpoints) doubtPod(namespace, name string) {
	if p := es.cluster.pod(namespace, name); p == nil || p.locals == 0 {
		return
	}
	for e := range es.of(namespace, name) {
		es.doubted[e] = true
	}
}

// doubtSpace has those of a namespace looked at again.
func (es *endpoints) doubtSpace(name string) {
	for _, e := range es.all {
		if e.Pod.Namespace == name {
			es.doubted[e] = true
		}
	}
}

// doubtPolicy has those looked at again that a policy, which may be nil, is or was about.
func (es *endpoints) doubtPolicy(key model.PolicyKey, was, is *policy) {
	for _, e := range es.all {
		if key.Namespace != "" && e.Pod.Namespace != key.Namespace {
			continue
		}
		if was.mayBeAbout(e.pod) || is.mayBeAbout(e.pod) {
			es.doubted[e] = true
		}
	}
}

// settle has the endpoints that are doubted go by the policies that select them now.
func (es *endpoints) settle() {
	for e := range es.doubted {
		es.settleOne(e)
	}
	clear(es.doubted)
}

func (es *endpoints) settleOne(e *endpoint) {
	e.pod = nil
	if p := es.cluster.pod(e.Pod.Namespace, e.Pod.Name); p != nil && p.identity != nil &&
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
	es.relink(claim{e.table, e.link()})
}

// relink has the maps of a table say what is right for an interface.
func (es *endpoints) relink(at claim) {
	best := es.chosen(at)
	for _, dir := range directions() {
		is := ""
		if best != nil && best.chains[dir] != nil {
			is = "goto " + best.chains[dir].name
		}
		at.table.setLink(at.link, dir, is)
	}
}

// chosen is the endpoint that the interface is, where several claim it: the one of the pod that is there now.
func (es *endpoints) chosen(at claim) *endpoint {
	var best *endpoint
	for _, e := range es.byLink[at] {
		if best == nil || e.before(best) {
			best = e
		}
	}
	return best
}

// of yields the endpoints of a pod.
func (es *endpoints) of(namespace, name string) func(yield func(*endpoint) bool) {
	return func(yield func(*endpoint) bool) {
		for _, e := range es.all {
			if e.Pod.Namespace == namespace && e.Pod.Name == name && !yield(e) {
				return
			}
		}
	}
}

// selected tells whether policies select an endpoint, in whatever direction.
func (es *endpoints) selected(key model.EndpointKey) bool {
	e := es.all[key]
	return e != nil && (e.chains[ingress] != nil || e.chains[egress] != nil)
}

// parties are the addresses of the endpoints of a place that policies select.
func (es *endpoints) parties(p Place) []state.Party {
	var out []state.Party
	for _, e := range es.all {
		if e.table.place != p {
			continue
		}
		begins, answers := e.chains[egress] != nil, e.chains[ingress] != nil
		for _, a := range e.Addrs {
			if begins || answers {
				out = append(out, state.Party{Addr: a, Begins: begins, Answers: answers})
			}
		}
	}
	slices.SortFunc(out, func(a, b state.Party) int { return a.Addr.Compare(b.Addr) })
	return out
}
