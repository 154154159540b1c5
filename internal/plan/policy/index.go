// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Config is what an Index needs to know beforehand.
type Config struct {
	// Node is this node's name.
	Node string
	// LogGroup is the group of the kernel's packet log that denied packets are told to, with the names of the policies and
	// at most ten in a second for the same ones; 0: to none.
	LogGroup int
	// Apart is how many NetworkPolicies that select one pod have a chain each; more are written together. 0 is a usual
	// number.
	Apart int
}

// Index is the front of the facts and of what is made of them. What is said to it costs what it touches; what comes out
// depends on the facts alone, and not on how they came about. It is not safe for several goroutines.
type Index struct {
	node      string
	cluster   *cluster
	groups    *groups
	compiler  *compiler
	tables    *tables
	endpoints *endpoints
	explainer *explainer
}

// New is an index without facts.
func New(cfg Config) *Index {
	c := newCluster()
	gs := newGroups(c)
	c.follower = gs
	m := newCompiler(c, cfg.LogGroup, cfg.Apart)
	ts := newTables(gs)
	es := newEndpoints(c, m, ts)
	return &Index{
		node: cfg.Node, cluster: c, groups: gs, compiler: m, tables: ts, endpoints: es,
		explainer: &explainer{c, gs, m, ts, es},
	}
}

// SetPolicy says what a policy is.
func (x *Index) SetPolicy(in model.Policy) {
	x.replace(in.PolicyKey, &policy{Policy: in, subject: compileTerm(in.Subject)})
}

// DelPolicy says that there is no such policy.
func (x *Index) DelPolicy(key model.PolicyKey) {
	if x.cluster.policies[key] != nil {
		x.replace(key, nil)
	}
}

func (x *Index) replace(key model.PolicyKey, p *policy) {
	was := x.cluster.setPolicy(key, p)
	x.compiler.forget(was)
	x.tables.stale[key] = true
	x.endpoints.doubtPolicy(key, was, p)
}

// SetNamespace says what a namespace is.
func (x *Index) SetNamespace(n model.Namespace) { x.relabeled(x.cluster.setNamespace(n)) }

// DelNamespace says that there is no such namespace.
func (x *Index) DelNamespace(name string) { x.relabeled(x.cluster.delNamespace(name)) }

func (x *Index) relabeled(s *space) {
	if s != nil {
		x.groups.reselect(s)
		x.endpoints.doubtSpace(s.name)
	}
}

// SetPod says what a pod is.
func (x *Index) SetPod(in model.Pod) {
	if x.cluster.setPod(in) {
		x.endpoints.doubtPod(in.Namespace, in.Name)
	}
}

// DelPod says that there is no such pod.
func (x *Index) DelPod(namespace, name string) {
	if x.cluster.delPod(namespace, name) {
		x.endpoints.doubtPod(namespace, name)
	}
}

// SetNode says what a node is.
func (x *Index) SetNode(in model.Node) { x.cluster.setNode(in) }

// DelNode says that there is no such node.
func (x *Index) DelNode(name string) { x.cluster.delNode(name) }

// SetSelf says which addresses the node has, those of bridges included.
func (x *Index) SetSelf(addrs []netip.Addr) {
	x.tables.self = slices.Compact(slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare))
}

// SetEndpoint says what an interface of a pod is: one of this node's is judged, and the addresses of all are what peers
// mean.
func (x *Index) SetEndpoint(in model.WorkloadEndpoint) {
	key := in.Key()
	in.Addrs = slices.Clone(in.Addrs)
	if e := x.endpoints.all[key]; e != nil {
		if e.EqualInPolicy(in) {
			e.WorkloadEndpoint = in
			return
		}
		x.endpoints.remove(e)
	}
	x.cluster.publish(key, in.Network, in.Addrs)
	if in.Node == x.node {
		x.endpoints.add(in)
	}
}

// DelEndpoint says that an interface of a pod is gone.
func (x *Index) DelEndpoint(key model.EndpointKey) {
	if e := x.endpoints.all[key]; e != nil {
		x.endpoints.remove(e)
	}
	x.cluster.publish(key, "", nil)
}

// Cut has the replies of a connection that policy has ended be dropped, until Uncut. Without that the next packet of
// the side that was connected to would look to the kernel like the first one of a connection the other way, which may
// well be allowed, and the old connection would live on in it. On the node it is cut at both of its places.
func (x *Index) Cut(p Place, f Flow) {
	if f.Protocol != "" {
		x.tables.cutting(p, f, true)
	}
}

// Uncut forgets a cut.
func (x *Index) Uncut(p Place, f Flow) { x.tables.cutting(p, f, false) }

// settle has the tables say what the facts do.
func (x *Index) settle() {
	if len(x.endpoints.doubted)+len(x.tables.stale) == 0 {
		return
	}
	x.tables.begin()
	x.endpoints.settle()
	x.tables.refresh()
}

// Tables are all tables, whole: the node's first; or those of some places. Where nobody is selected by any policy there
// is none.
func (x *Index) Tables(only ...Place) []Table {
	x.settle()
	return x.tables.whole(only...)
}

// Changes are what separates the tables now from the tables when it was asked last, or from nothing.
func (x *Index) Changes() []Change {
	x.settle()
	out := x.tables.changes()
	x.groups.sweep()
	return out
}

// Denials say of the chains of a place's table which of them count denied packets, and whose.
func (x *Index) Denials(p Place) map[string]Denial {
	x.settle()
	return x.tables.denials(p)
}

// Parties are who begins or answers connections that policies judge in a place: the addresses of the interfaces that
// they select.
func (x *Index) Parties(p Place) []state.Party {
	x.settle()
	return x.endpoints.parties(p)
}

// Selected tells whether policies select an interface of this node, in whatever direction.
func (x *Index) Selected(key model.EndpointKey) bool { return x.endpoints.selected(key) }

// SelectedPods is how many pods of the cluster a policy selects, those of other nodes and of the host's network among
// them. Of a policy that the index does not have it is false.
func (x *Index) SelectedPods(key model.PolicyKey) (pods int, known bool) {
	p := x.cluster.policies[key]
	if p == nil {
		return 0, false
	}
	return x.cluster.selectedPods(p), true
}

// Holder is the pod that has an address of a network, that of the cluster where it is "": zero where none is known.
func (x *Index) Holder(network string, a netip.Addr) model.PodRef {
	ref, _ := x.cluster.podAt(homed{network, a.Unmap()})
	return ref
}

// Barred tells whether policy is against what has begun at a tap: out of the guest, or to it. Whose the addresses are
// does not matter.
func (x *Index) Barred(p Place, f Flow, out bool) bool {
	x.settle()
	return x.explainer.barred(p, f, out)
}

// Allowed tells whether policy lets a connection be, as far as this node judges it in a place. Dst is where it led
// after the translation of addresses, Src whence it came before. What the node itself began is always allowed.
func (x *Index) Allowed(p Place, f Flow) bool {
	x.settle()
	return x.explainer.allowed(p, f)
}

// Show says what policies say of a pod and of all its interfaces. Of a pod of another node it is what that node does if
// it knows the same.
func (x *Index) Show(ref model.PodRef) (View, error) {
	x.settle()
	return x.explainer.show(ref)
}

// Why says for each family that both ends have what becomes of a connection, and which policies, rules and elements
// decide it.
func (x *Index) Why(q Query) ([]Answer, error) {
	x.settle()
	return x.explainer.why(q)
}
