// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Config is the configuration of an Index.
type Config struct {
	// Node is this node's name.
	Node string
	// LogGroup is the NFLOG group to which denied packets are logged, with the names of the policies and at most ten in a
	// second for the same ones; 0: not logged.
	LogGroup int
	// SeparateChains is how many NetworkPolicies that select one pod get a chain each; more are merged. If more ordered
	// policies follow each other in a tier, groups of about as many get a chain each. 0 is the default.
	SeparateChains int
	// Tunnels are the mesh's, which pass between nodes whatever policies at host endpoints say.
	Tunnels []Tunnel
}

// Index is the compiler's front: facts go in, tables come out. A change costs what it affects; the tables depend on the
// facts only, not on their history. It is not safe for concurrent use.
type Index struct {
	node      string
	cluster   *cluster
	groups    *groups
	compiler  *compiler
	tables    *tables
	endpoints *endpoints
	hosts     *hosts
	explainer *explainer
	// version counts changes of facts.
	version uint64
}

// New returns an index without facts.
func New(cfg Config) *Index {
	c := newCluster()
	gs := newGroups(c)
	c.observer, c.pods.observer = gs, gs
	m := newCompiler(c, cfg.LogGroup, cfg.SeparateChains)
	ts := newTables(gs)
	es := newEndpoints(c, m, ts)
	hs := newHosts(cfg, c, m, ts, es)
	return &Index{
		node: cfg.Node, cluster: c, groups: gs, compiler: m, tables: ts, endpoints: es, hosts: hs,
		explainer: &explainer{c, gs, m, ts, es, hs},
	}
}

// Version changes whenever a fact may have changed, and with it what Decide, Holder and NodeOf return.
func (x *Index) Version() uint64 { return x.version }

// SetPolicy adds or replaces a policy.
func (x *Index) SetPolicy(in model.Policy) {
	x.replace(in.PolicyKey, &policy{Policy: in, subject: compileTerm(in.Subject)})
}

// DelPolicy deletes a policy.
func (x *Index) DelPolicy(key model.PolicyKey) {
	if x.cluster.policies[key] != nil {
		x.replace(key, nil)
	}
}

func (x *Index) replace(key model.PolicyKey, p *policy) {
	x.version++
	was := x.cluster.setPolicy(key, p)
	x.compiler.forget(was)
	x.tables.stale[key] = true
	x.endpoints.markPolicy(key, was, p)
	if key.Kind == model.KindGlobalNetworkPolicy {
		x.hosts.dirty = true
	}
}

// SetNamespace adds or replaces a namespace.
func (x *Index) SetNamespace(n model.Namespace) { x.namespaceChanged(x.cluster.pods.setNamespace(n)) }

// DelNamespace deletes a namespace.
func (x *Index) DelNamespace(name string) { x.namespaceChanged(x.cluster.pods.delNamespace(name)) }

func (x *Index) namespaceChanged(s *namespace) {
	if s != nil {
		x.version++
		x.groups.reselect(s)
		x.endpoints.markNamespace(s.name)
		if x.cluster.sets.in(s.name) {
			x.Calico().setsChanged()
		}
	}
}

// SetPod adds or replaces a pod.
func (x *Index) SetPod(in model.Pod) {
	x.version++
	if x.cluster.pods.setPod(in) {
		x.endpoints.markPod(in.Namespace, in.Name)
	}
}

// DelPod deletes a pod.
func (x *Index) DelPod(namespace, name string) {
	x.version++
	if x.cluster.pods.delPod(namespace, name) {
		x.endpoints.markPod(namespace, name)
	}
}

// SetNode adds or replaces a node.
func (x *Index) SetNode(in model.Node) {
	x.version++
	if x.cluster.setNode(in) {
		x.hosts.nodesChanged()
	}
}

// DelNode deletes a node.
func (x *Index) DelNode(name string) {
	x.version++
	x.cluster.delNode(name)
	x.hosts.nodesChanged()
}

// SetSelf sets this node's addresses, including those of bridges.
func (x *Index) SetSelf(addrs []netip.Addr) {
	x.version++
	x.tables.self = slices.Compact(slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare))
}

// SetEndpoint adds or replaces an endpoint: policy is enforced on this node's, and the addresses of all are those of
// peers.
func (x *Index) SetEndpoint(in model.WorkloadEndpoint) {
	key := in.Key()
	in.Addrs = slices.Clone(in.Addrs)
	x.version++
	if e := x.endpoints.all[key]; e != nil {
		if e.EqualInPolicy(in) {
			e.WorkloadEndpoint = in
			return
		}
		x.endpoints.remove(e)
	}
	x.cluster.pods.publish(key, in.Network, in.Addrs)
	if in.Node == x.node {
		x.endpoints.add(in)
		x.hosts.dirty = true
	}
}

// DelEndpoint deletes an endpoint.
func (x *Index) DelEndpoint(key model.EndpointKey) {
	x.version++
	if e := x.endpoints.all[key]; e != nil {
		x.endpoints.remove(e)
		x.hosts.dirty = true
	}
	x.cluster.pods.publish(key, "", nil)
}

// DropReplies drops the replies of a connection that policy denies now, until UndropReplies. Otherwise the kernel would
// take the next reply for the first packet of a new connection in the other direction, which may be allowed, and the
// old connection would continue. On the node they are dropped in both of its places. They pass again when a packet of
// the connection, or of a new one with the same ports, has passed all policies, except at ports and taps.
func (x *Index) DropReplies(p EnforcementPoint, f Flow) {
	if f.Protocol != "" {
		x.tables.setDropped(p, f, true)
	}
}

// UndropReplies reverses DropReplies.
func (x *Index) UndropReplies(p EnforcementPoint, f Flow) { x.tables.setDropped(p, f, false) }

// update updates the tables to the facts.
func (x *Index) update() {
	if x.hosts.refresh() {
		x.Calico().setsChanged()
	}
	if len(x.endpoints.dirty)+len(x.tables.stale) == 0 && !x.hosts.dirty {
		return
	}
	x.tables.begin()
	x.endpoints.updateDirty()
	x.hosts.update()
	x.tables.refresh()
}

// Tables returns all complete tables, the node's first; or those of some places. A place without a selected endpoint
// has none.
func (x *Index) Tables(only ...EnforcementPoint) []Table {
	x.update()
	return x.tables.full(only...)
}

// Changes returns the changes of the tables since its last call.
func (x *Index) Changes() []Change {
	x.update()
	out := x.tables.changes()
	x.groups.sweep()
	return out
}

// Denials returns the chains of a place's table that count denied packets, with their policies.
func (x *Index) Denials(p EnforcementPoint) map[string]Denial {
	x.update()
	return x.tables.denials(p)
}

// ConntrackPeers returns the addresses of the endpoints that policies select in a place.
func (x *Index) ConntrackPeers(p EnforcementPoint) []state.ConntrackPeer {
	x.update()
	return x.endpoints.conntrackPeers(p)
}

// Selected reports whether policies select an endpoint of this node, in any direction.
func (x *Index) Selected(key model.EndpointKey) bool { return x.endpoints.selected(key) }

// SelectedPods returns how many pods of the cluster a policy selects, including those of other nodes and with host
// networking; false if the index does not have the policy.
func (x *Index) SelectedPods(key model.PolicyKey) (pods int, known bool) {
	p := x.cluster.policies[key]
	if p == nil {
		return 0, false
	}
	return x.cluster.selectedPods(p), true
}

// NodeOf returns the node of a pod; empty if it is not known.
func (x *Index) NodeOf(ref model.PodRef) string {
	if p := x.cluster.pods.pod(ref.Namespace, ref.Name); p != nil && p.node != (text{}) {
		return p.node.Value()
	}
	return ""
}

// Holder returns the pod that has an address of a network ("" is the cluster's); zero if none is known.
func (x *Index) Holder(network string, a netip.Addr) model.PodRef {
	ref, _ := x.cluster.pods.podAt(networkAddr{network, a.Unmap()})
	return ref
}

// DeniedAtTap reports whether policy denies a flow at a tap: out of the guest, or to it. The owners of the addresses do
// not matter.
func (x *Index) DeniedAtTap(p EnforcementPoint, f Flow, out bool) bool {
	x.update()
	return x.explainer.deniedAtTap(p, f, out)
}

// Allowed reports whether policy allows a connection, as far as this node enforces it in a place. Dst is the
// destination after DNAT, Src the source before SNAT. Connections from the node itself are always allowed.
func (x *Index) Allowed(p EnforcementPoint, f Flow) bool {
	x.update()
	return x.explainer.allowed(p, f)
}

// Show returns the policies and rules for a pod and all its interfaces. For a pod of another node it is what that node
// enforces if it has the same facts.
func (x *Index) Show(ref model.PodRef) (View, error) {
	x.update()
	return x.explainer.show(ref)
}

// Why returns for each common family of both ends whether a connection is allowed, and which policies, rules and
// elements decide it.
func (x *Index) Why(q Query) ([]Answer, error) {
	x.update()
	return x.explainer.why(q)
}

// Decide returns what the policies decide about a flow of a network on the sides that this node enforces; none: neither
// end is an endpoint of this node. Unlike Why it compiles nothing for pods of other nodes.
func (x *Index) Decide(network string, f Flow) []Side {
	x.update()
	return x.explainer.decide(network, f)
}
