// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// explainer answers why a connection is allowed or denied: it evaluates the same chains, sets and groups as the kernel,
// and for other nodes' endpoints compiles them in a scratch table.
type explainer struct {
	cluster   *cluster
	groups    *groups
	compiler  *compiler
	tables    *tables
	endpoints *endpoints
	hosts     *hosts
}

func (x *explainer) walker() *walker { return &walker{x.groups, x.compiler} }

// deniedAtTap reports whether policy denies a flow at a tap: out of the guest, or to it. The owners of the addresses do
// not matter.
func (x *explainer) deniedAtTap(p EnforcementPoint, f Flow, out bool) bool {
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

// allowed reports whether policy allows a connection, as far as this node enforces it in a place. Dst is the
// destination after DNAT, Src the source before SNAT. Connections from the node itself are always allowed.
func (x *explainer) allowed(p EnforcementPoint, f Flow) bool {
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

// endpointOrTemplate returns the pod's endpoint on this node, or what would be one.
func (x *explainer) endpointOrTemplate(pod model.PodRef, network string, own netip.Addr) (*endpoint, bool) {
	for _, e := range x.endpoints.byAddr[own] {
		if e.Pod.Namespace == pod.Namespace && e.Pod.Name == pod.Name && e.Network == network {
			return e, true
		}
	}
	e := &endpoint{WorkloadEndpoint: model.WorkloadEndpoint{Pod: pod, Network: network}}
	if p := x.cluster.pods.pod(pod.Namespace, pod.Name); p != nil && p.identity != nil {
		e.pod = p
	}
	return e, false
}

// scratchTable compiles the chains of another node's endpoint in a table that is never written to the kernel.
func (x *explainer) scratchTable(e *endpoint) (*table, func()) {
	t := newTable(EnforcementPoint{}, x.groups)
	e.pod.locals++ // named ports are resolved on the pod's own node
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
