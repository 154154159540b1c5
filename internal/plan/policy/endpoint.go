// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// endpoint is an interface of a pod on this node.
type endpoint struct {
	model.Endpoint
	table  *table
	pod    *pod // whose uid is the endpoint's; nil: it is not known
	chains [2]*chainSpec
}

// link is the interface's name in the table's namespace.
func (e *endpoint) link() string {
	switch e.Point {
	case model.PointPod, model.PointTap, model.PointDevice:
		return e.IfName
	}
	return e.HostLink
}

// before decides between endpoints that claim one interface.
func (e *endpoint) before(o *endpoint) bool {
	if (e.pod == nil) != (o.pod == nil) {
		return e.pod != nil
	}
	return cmp.Or(strings.Compare(e.Key().String(), o.Key().String()), strings.Compare(e.Pod.UID, o.Pod.UID)) < 0
}

// SetEndpoint says what an interface of a pod is: one of this node's is judged, and the addresses of all are what peers mean.
func (x *Index) SetEndpoint(in model.Endpoint) {
	key := in.Key()
	in.Addrs = slices.Clone(in.Addrs)
	if e := x.endpoints[key]; e != nil {
		if e.Endpoint.Equal(in) {
			return
		}
		x.delLocal(e)
	}
	x.publish(key, in.Network, in.Addrs)
	if in.Node != x.cfg.Node {
		return
	}
	place := Place{Ports: in.Point == model.PointPort}
	switch in.Point {
	case model.PointPod:
		place.Pod = in.Pod
	case model.PointTap:
		place.Pod, place.Tap = in.Pod, in.IfName
	case model.PointDevice:
		place.Pod, place.Device = in.Pod, in.Device
	}
	e := &endpoint{Endpoint: in, table: x.table(place)}
	x.endpoints[key] = e
	e.table.links[e.link()] = append(e.table.links[e.link()], e)
	for _, a := range in.Addrs {
		x.byAddr[a] = append(x.byAddr[a], e)
	}
	x.localPod(key, 1)
	x.doubt(e)
}

// Selected tells whether policies select an interface of this node, in whatever direction.
func (x *Index) Selected(key model.EndpointKey) bool {
	e := x.endpoints[key]
	return e != nil && (e.chains[ingress] != nil || e.chains[egress] != nil)
}

// DelEndpoint says that an interface of a pod is gone.
func (x *Index) DelEndpoint(key model.EndpointKey) {
	if e := x.endpoints[key]; e != nil {
		x.delLocal(e)
	}
	x.publish(key, "", nil)
}

func (x *Index) delLocal(e *endpoint) {
	x.localPod(e.Key(), -1)
	t, link := e.table, e.link()
	if t.links[link] = slices.DeleteFunc(t.links[link], func(o *endpoint) bool { return o == e }); len(t.links[link]) == 0 {
		delete(t.links, link)
	}
	t.relink(link)
	for _, dir := range directions() {
		if e.chains[dir] != nil {
			x.dropChain(t, e.chains[dir].name)
		}
	}
	for _, a := range e.Addrs {
		if x.byAddr[a] = slices.DeleteFunc(x.byAddr[a], func(o *endpoint) bool { return o == e }); len(x.byAddr[a]) == 0 {
			delete(x.byAddr, a)
		}
	}
	delete(x.endpoints, e.Key())
	delete(x.doubted, e)
}

// localPod counts the endpoints that this node has of a pod.
func (x *Index) localPod(key model.EndpointKey, n int) {
	s := x.space(key.Namespace)
	p := s.pods[key.Pod]
	if p == nil {
		p = x.newPod(s, key.Pod)
	}
	x.withdraw(p)
	p.locals = uint8(int(p.locals) + n)
	x.announce(p)
	x.dropPod(s, key.Pod)
}

func (x *Index) table(p Place) *table {
	t := x.tables[p]
	if t == nil {
		t = newTable(p)
		x.tables[p] = t
	}
	return t
}

// doubt has an endpoint's combinations looked at again.
func (x *Index) doubt(e *endpoint) { x.doubted[e] = true }

func (x *Index) doubtPod(namespace, name string) {
	if p := x.pod(namespace, name); p == nil || p.locals == 0 {
		return
	}
	for _, e := range x.endpoints {
		if e.Pod.Namespace == namespace && e.Pod.Name == name {
			x.doubt(e)
		}
	}
}

// settleEndpoint has the endpoint go by the policies that select it now.
func (x *Index) settleEndpoint(e *endpoint) {
	e.pod = nil
	if p := x.pod(e.Pod.Namespace, e.Pod.Name); p != nil && p.identity != nil && (e.Pod.UID == "" || p.uid == 0 || p.uid == hashUID(e.Pod.UID)) {
		e.pod = p
	}
	for _, dir := range directions() {
		was, is := e.chains[dir], x.chainOf(e, dir)
		if is != nil {
			x.useChain(e.table, is)
		}
		if was != nil {
			x.dropChain(e.table, was.name)
		}
		e.chains[dir] = is
	}
	e.table.relink(e.link())
}

// chainOf is where the endpoint's packets are judged; nil: nowhere.
func (x *Index) chainOf(e *endpoint, dir direction) *chainSpec {
	if e.pod == nil {
		if x.mayConcern(e, dir) {
			return x.denyChain(nil, dir)
		}
		return nil
	}
	if e.Network == "" && slices.ContainsFunc(x.cluster, func(p *policy) bool {
		return len(direct(&p.Policy, dir).Rules) > 0 && p.subject.unsure(e.pod.identity.space)
	}) {
		return x.denyChain(nil, dir)
	}
	if c := x.combination(e, dir); !c.empty() {
		return x.podsChain(c, dir)
	}
	return nil
}

// mayConcern tells whether some policy might select a pod of which nothing is known.
func (x *Index) mayConcern(e *endpoint, dir direction) bool {
	s := x.spaces[e.Pod.Namespace]
	if e.Network != "" {
		return s != nil && slices.ContainsFunc(s.multis, func(p *policy) bool {
			return direct(&p.Policy, dir).On && slices.Contains(p.Networks, e.Network)
		})
	}
	return slices.ContainsFunc(x.cluster, func(p *policy) bool { return len(direct(&p.Policy, dir).Rules) > 0 }) ||
		s != nil && slices.ContainsFunc(s.policies, func(p *policy) bool { return direct(&p.Policy, dir).On })
}

// combination are the policies that select the endpoint in a direction.
func (x *Index) combination(e *endpoint, dir direction) combination {
	var c combination
	id := e.pod.identity
	plain := id.space.policies
	if e.Network != "" {
		plain = id.space.multis
	}
	for _, p := range plain {
		if direct(&p.Policy, dir).On && p.subject.matches(id) && (e.Network == "" || slices.Contains(p.Networks, e.Network)) {
			c.plain = append(c.plain, p.PolicyKey)
		}
	}
	if e.Network != "" {
		return c
	}
	for _, p := range x.cluster {
		if len(direct(&p.Policy, dir).Rules) == 0 || !p.subject.matches(id) {
			continue
		}
		if p.Tier == model.TierBaseline {
			c.baseline = append(c.baseline, p.PolicyKey)
		} else {
			c.admin = append(c.admin, p.PolicyKey)
		}
	}
	return c
}

func sortedAddrs(in []netip.Addr) []netip.Addr {
	return slices.Compact(slices.SortedFunc(slices.Values(in), netip.Addr.Compare))
}
