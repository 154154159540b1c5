// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Config is how a mesh is built.
type Config struct {
	// Backend is how packets get from node to node; empty is host-gw.
	Backend string
	// Backends is the table of those that may be used; empty is Backends(). Each peer is reached by the one that it publishes.
	Backends []Backend
	Vxlan    Vxlan
	// VtepSeed is random text for self's VtepMAC where self publishes it and has not published one yet. Without it, and where nodes
	// publish nothing, a VtepMAC comes from the node's name.
	VtepSeed string
	// VtepAlone tells that of what self could publish others are told Topology.Vtep alone.
	VtepAlone bool
	// These are the keys of the other back ends.
	UDP       UDP
	IPIP      IPIP
	Wireguard Wireguard
	Extension Extension
	// Networks are the prefixes that all nodes' pods are in. Where there are any, a family without one is off, and a podCIDR
	// outside of them is not routed.
	Networks []netip.Prefix
	// Interface is the link to the other nodes; empty is the one that holds the node's address.
	Interface string
	// Learned is what back ends in user space have found out (Runner.Learn), by their names.
	Learned map[string]string
	// BadChecksums are devices through which packets arrive broken unless the kernel computes their checksums itself: the
	// reconciler has seen it.
	BadChecksums []string
	// Masquerade are the prefixes of all nodes' pods: what a pod sends to anywhere else has its node's address. None: it
	// keeps its own.
	Masquerade []netip.Prefix
	// Keep are further prefixes where the receiver sees the pod's own address.
	Keep []netip.Prefix
	// PortsInOrder has masquerading take the pod's own port where it is free, instead of a random one.
	PortsInOrder bool
	// Pools has the blocks of the cluster's pools routed to their nodes, each as its pool says. Where the nodes' prefixes lie in
	// a pool they are not routed: blocks are what its addresses come in.
	Pools bool
	// Brought are the prefixes of which nodes may lead single addresses to their pods that no IPAM gave (model.Node.Brought). What a
	// pool, a prefix of the cluster or a node has is never led anywhere else.
	Brought []netip.Prefix
	// Marked are self's pods whose packets to the outside of the cluster bear a code point.
	Marked []Marked
	// TunnelAddrs are self's own addresses at its tunnels' ends, at most one a family; without one of a family it is the first
	// of self's prefix.
	TunnelAddrs []netip.Addr
	// Beside expects pods on a bridge of self's prefixes, which was the design before: it answers them for those that are routed.
	Beside bool
	// Routed are the addresses of the pods that are, of IPv6: only where Topology.Bridged tells that they matter.
	Routed []netip.Addr
	// Relays let packets for machines that have just migrated to self come by way of where they were.
	Relays []Relay
	// Blackhole refuses what is sent to an address of self's own prefixes that no pod has, instead of sending it elsewhere.
	Blackhole bool
}

func (c Config) badChecksums(link string) bool { return slices.Contains(c.BadChecksums, link) }

// Owners of the fragments.
const (
	OwnerNode = "mesh/node"
	OwnerPeer = "mesh/peer/" // and the peer's name
)

// Observe says what must be known of the kernel.
func Observe(c *model.Cluster, cfg Config) []state.Query {
	self, ok := find(c)
	if !ok {
		return nil
	}
	var out []state.Query
	for _, addr := range addrsOf(self) {
		out = append(out, state.Query{Space: state.Host, LinkOf: addr})
	}
	if cfg.Beside {
		for _, gw := range bridgeGateways(self) {
			out = append(out, state.Query{Space: state.Host, LinkOf: gw})
		}
	}
	if cfg.Interface != "" {
		out = append(out, state.Query{Space: state.Host, Link: cfg.Interface})
	}
	held, _ := gather(c, cfg)
	used, err := cfg.used(c.Nodes, c.Self, held)
	if err != nil {
		return out // Plan says so
	}
	for _, b := range used {
		if b.Observe != nil {
			out = append(out, b.Observe(cfg, self)...)
		}
	}
	return out
}

// Plan plans the mesh of c.Self. It errs when the cluster has no such node, or when a back end does not exist or refuses
// the configuration; all else that is wrong with the facts is in the topology's problems.
func Plan(c *model.Cluster, cfg Config, answers state.Answers) (Topology, error) {
	cfg.Backends = cfg.table() // once, not for each peer
	held, unheld := gather(c, cfg)
	used, err := cfg.used(c.Nodes, c.Self, held)
	if err != nil {
		return Topology{}, err
	}
	self, ok := find(c)
	if !ok {
		return Topology{}, model.Faultf(model.CodeInvalidConf, "add a Node object of that name, or start the agent with the right --node",
			"node %q is not in the cluster", c.Self)
	}
	nodes, byName := c.Nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(nodes, byName) {
		nodes = slices.SortedFunc(slices.Values(nodes), byName)
	}
	nodes = held.without(cfg.on(nodes))
	self = held.without(cfg.on([]model.Node{self}))[0]
	t := Topology{
		Self: self.Name, Backend: used[0].Name, PodCIDRs: first(self.PodCIDRs), Blocks: cidrs(held.of[self.Name]), Pools: held.names(),
		Underlay: []Underlay{}, Peers: make([]Peer, 0, len(nodes)), Problems: []Problem{},
	}
	p := &Planner{cfg: cfg, self: self, pools: held, answers: answers, underlay: map[int]Underlay{}, vteps: map[int]state.MAC{}}
	t.Problems = append(t.Problems, p.observe(cfg.Interface)...)
	for _, family := range families() {
		if u, ok := p.underlay[family]; ok {
			t.Underlay = append(t.Underlay, u)
		} else if slices.ContainsFunc(addrsOf(p.self), func(a netip.Addr) bool { return familyOf(a) == family }) {
			t.Lost = append(t.Lost, family)
		}
	}
	unusable, problems := check(nodes, self.Name, cfg.Networks, held)
	t.Problems = append(t.Problems, problems...)
	for _, problem := range unheld {
		t.add(problem)
	}
	p.metrics = metrics(nodes, held)
	p.node(&t, used, unusable, nodes)
	if len(cfg.Marked) > 0 {
		t.Node.Owner = OwnerNode
		t.Node.Host.Tables = append(t.Node.Host.Tables, dscp(cfg, c.Nodes, held))
	}
	for _, n := range nodes {
		if n.Name == self.Name {
			continue
		}
		peer, problems := p.peer(&t, n, unusable)
		t.Peers = append(t.Peers, peer)
		for _, problem := range problems {
			t.add(problem)
		}
	}
	t.sameVteps()
	t.Publish = p.publish(used[0])
	if slices.ContainsFunc(used, func(b Backend) bool { return b.Name == "vxlan" }) {
		t.Vtep = p.vtepWords(nodes)
	}
	return t, nil
}

// node plans what all peers need. A node that is alone needs the devices of its own back end only: what its pods send
// must fit through them later.
func (p *Planner) node(t *Topology, used []Backend, unusable map[claim]bool, nodes []model.Node) {
	f, alone := state.Fragment{Owner: OwnerNode}, len(nodes) == 1
	var untracked []uint16
	var encapsulations []encapsulation
	for _, b := range used {
		if b.Node == nil {
			continue
		}
		part := b.Node(p)
		for _, problem := range part.Problems {
			t.add(problem)
		}
		if part.MTU > 0 && (t.MTU == 0 || part.MTU < t.MTU) {
			t.MTU = part.MTU
		}
		if alone && len(part.Host.Links)+len(part.Tunnels) == 0 {
			continue
		}
		f.Merge(state.Fragment{Host: part.Host, Effects: part.Effects})
		t.Tunnels = withTunnels(t.Tunnels, part.Tunnels)
		untracked = append(untracked, part.Untracked...)
		encapsulations = append(encapsulations, part.encapsulations...)
	}
	if len(untracked) > 0 {
		f.Host.Tables = append(f.Host.Tables, notrack(untracked))
	}
	f.Host.Tables = append(f.Host.Tables, p.guard(nodes, unusable, encapsulations))
	for i := range t.Tunnels {
		if t.Tunnels[i].Backend == udpName {
			t.Tunnels[i].Sources = p.sources(nodes, unusable)
		}
	}
	f.Host.Routes = append(f.Host.Routes, p.blackholes(unusable)...)
	beside, bridged := p.beside()
	f.Merge(state.Fragment{Host: beside})
	t.Bridged = bridged
	if len(p.cfg.Masquerade) > 0 || p.pools.hide() {
		f.Host.Tables = append(f.Host.Tables, masquerade(p.cfg, p.pools))
	}
	if !f.Host.Empty() {
		t.Node = f
	}
}

// add adds a problem; one that was told of another peer in the same words is told once, of both.
func (t *Topology) add(p Problem) {
	i := slices.IndexFunc(t.Problems, func(o Problem) bool { return o.Message == p.Message })
	if i < 0 {
		t.Problems = append(t.Problems, p)
		return
	}
	for _, n := range p.Nodes {
		if !slices.Contains(t.Problems[i].Nodes, n) {
			t.Problems[i].Nodes = append(t.Problems[i].Nodes, n)
		}
	}
}

// peer plans one peer.
func (p *Planner) peer(t *Topology, n model.Node, unusable map[claim]bool) (Peer, []Problem) {
	peer := Peer{Name: n.Name, Addrs: addrsOf(n), PodCIDRs: first(n.PodCIDRs), Blocks: cidrs(p.pools.of[n.Name]), Fragment: state.Fragment{Owner: OwnerPeer + n.Name}}
	b, err := p.cfg.Find(p.cfg.of(n))
	if err != nil {
		return peer, []Problem{unknown(n, err)}
	}
	peer.Backend = b.Name
	var problems []Problem
	if len(n.PodCIDRs) == 0 && len(p.pools.all) == 0 {
		problems = append(problems, Problem{[]string{n.Name}, fmt.Sprintf("node %s has no podCIDR", n.Name), "set spec.podCIDRs of the Node"})
	}
	for _, cidr := range peer.PodCIDRs {
		if unusable[claim{n.Name, cidr, ofNode}] || b.Peer == nil {
			continue
		}
		part, problem := b.Peer(p, n, cidr)
		problems = append(problems, t.reach(&peer, part, problem)...)
	}
	for _, s := range p.pools.of[n.Name] {
		if unusable[claim{n.Name, s.cidr, ofPool}] {
			continue
		}
		part, problem := p.span(b, n, s)
		problems = append(problems, t.reach(&peer, part, problem)...)
	}
	return peer, problems
}

// reach adds to a peer what reaches a part of it, or tells what stands in the way.
func (t *Topology) reach(peer *Peer, part Part, problem *Problem) []Problem {
	if problem != nil {
		return []Problem{*problem}
	}
	have := &peer.Fragment.Host
	if f := (state.Fragment{Host: part.Host, Effects: part.Effects}); have.Empty() {
		*have, peer.Fragment.Effects = f.Host, f.Effects // most have one prefix, and there are thousands
	} else {
		f.Host.Neighs = slices.DeleteFunc(f.Host.Neighs, func(n state.Neigh) bool { return slices.Contains(have.Neighs, n) })
		f.Host.FDBs = slices.DeleteFunc(f.Host.FDBs, func(n state.FDB) bool { return slices.Contains(have.FDBs, n) })
		peer.Fragment.Merge(f)
	}
	t.Tunnels = withTunnels(t.Tunnels, part.Tunnels)
	return part.Problems
}

// unknown tells of a peer whose back end this node does not have.
func unknown(n model.Node, err error) Problem {
	problem := Problem{[]string{n.Name}, fmt.Sprintf("node %s: %s", n.Name, err), ""}
	var fault *model.Fault
	if errors.As(err, &fault) {
		problem.Message, problem.Hint = fmt.Sprintf("node %s: %s", n.Name, fault.Msg), fault.Hint
	}
	return problem
}

func find(c *model.Cluster) (model.Node, bool) {
	i := slices.IndexFunc(c.Nodes, func(n model.Node) bool { return n.Name == c.Self })
	if i < 0 {
		return model.Node{}, false
	}
	return c.Nodes[i], true
}
