// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// explainer answers why: it asks the chains, sets and groups that the kernel is given, and for what is
// judged elsewhere makes them in a table that nobody sees.
type explainer struct {
	cluster   *cluster
	groups    *groups
	compiler  *compiler
	tables    *tables
	endpoints *endpoints
}

func (x *explainer) walker() *walker { return &walker{x.groups, x.compiler} }

// barred tells whether policy is against what has begun at a tap: out of the guest, or to it. Whose the addresses are
// does not matter.
func (x *explainer) barred(p Place, f Flow, out bool) bool {
	t := x.tables.all[p]
	dir := ingress
	if out {
		dir = egress
	}
	if t == nil || p.Tap == "" || dir == ingress && slices.Contains(x.tables.self, f.Src) {
		return false
	}
	e := x.endpoints.chosen(claim{t, p.Tap})
	return e != nil && e.chains[dir] != nil && x.walker().walk(t, e.chains[dir].name, f, dir).verdict == verdictDrop
}

// allowed tells whether policy lets a connection be, as far as this node judges it in a place. Dst is where it led
// after the translation of addresses, Src whence it came before. What the node itself began is always allowed.
func (x *explainer) allowed(p Place, f Flow) bool {
	t := x.tables.all[p]
	if t == nil || slices.Contains(x.tables.self, f.Src) && p.node() {
		return true
	}
	for _, dir := range directions() {
		own := f.Dst
		if dir == egress {
			own = f.Src
		} else if slices.Contains(x.tables.self, f.Src) {
			continue
		}
		for _, e := range x.endpoints.byAddr[own] {
			if e.table == t && e.chains[dir] != nil && x.walker().walk(t, e.chains[dir].name, f, dir).verdict == verdictDrop {
				return false
			}
		}
	}
	return true
}

// standIn is the pod's endpoint here, or what would be one.
func (x *explainer) standIn(pod model.PodRef, network string, own netip.Addr) (*endpoint, bool) {
	for _, e := range x.endpoints.byAddr[own] {
		if e.Pod.Namespace == pod.Namespace && e.Pod.Name == pod.Name && e.Network == network {
			return e, true
		}
	}
	e := &endpoint{WorkloadEndpoint: model.WorkloadEndpoint{Pod: pod, Network: network}}
	if p := x.cluster.pod(pod.Namespace, pod.Name); p != nil && p.identity != nil {
		e.pod = p
	}
	return e, false
}

// trial makes the chains of an endpoint of another node in a table that nobody sees.
func (x *explainer) trial(e *endpoint) (*table, func()) {
	t := newTable(Place{}, x.groups)
	e.pod.locals++ // ports by name are resolved on the pod's own node
	for _, dir := range directions() {
		if e.chains[dir] = x.compiler.chainOf(e.subject(), dir); e.chains[dir] != nil {
			t.useChain(e.chains[dir])
		}
	}
	return t, func() {
		e.pod.locals--
		for _, c := range e.chains {
			if c != nil {
				t.dropChain(c.name)
			}
		}
	}
}
