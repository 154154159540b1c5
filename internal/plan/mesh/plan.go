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

// Owners of the fragments.
const (
	OwnerNode = "mesh/node"
	OwnerPeer = "mesh/peer/" // and the peer's name
	OwnerBGP  = "mesh/bgp/"  // and the address of BGP's peer
)

// Observe returns the kernel queries whose answers Plan needs.
func Observe(c *model.Cluster, cfg Config) []state.Query {
	self, ok := findSelf(c)
	if !ok {
		return nil
	}
	var out []state.Query
	for _, addr := range addrsOf(self) {
		out = append(out, state.Query{Space: state.Host, LinkOf: addr})
	}
	if cfg.BridgePods {
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
		return out // Plan returns the error
	}
	for _, b := range used {
		if b.Observe != nil {
			out = append(out, b.Observe(cfg, self)...)
		}
	}
	return out
}

// Plan plans the mesh of c.Self. It returns an error if the cluster has no such node, if a backend does not exist, or
// if its configuration is invalid; all other contradictions are in the topology's problems.
func Plan(c *model.Cluster, cfg Config, answers state.Answers) (Topology, error) {
	t, all, err := plan(c, cfg, answers)
	if err == nil {
		all.guard.fill(&t)
	}
	return t, err
}

// planned is what a plan was made of.
type planned struct {
	*Planner
	displaced []displacedMetric
	guard     guard
}

// plan plans without the elements of the sets of senders.
func plan(c *model.Cluster, cfg Config, answers state.Answers) (Topology, planned, error) {
	cfg.Backends = cfg.table() // once, not for each peer
	held, unheld := gather(c, cfg)
	used, err := cfg.used(c.Nodes, c.Self, held)
	if err != nil {
		return Topology{}, planned{}, err
	}
	self, ok := findSelf(c)
	if !ok {
		return Topology{}, planned{}, model.Errorf(model.CodeInvalidConf,
			"add a Node object of that name, or start the agent with the right --node",
			"node %q is not in the cluster", c.Self)
	}
	nodes, byName := c.Nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(nodes, byName) {
		nodes = slices.SortedFunc(slices.Values(nodes), byName)
	}
	nodes = held.withoutPoolCIDRs(cfg.enabledFamilies(nodes))
	self = held.withoutPoolCIDRs(cfg.enabledFamilies([]model.Node{self}))[0]
	t := Topology{
		Self:     self.Name,
		Backend:  used[0].Name,
		PodCIDRs: firstPerFamily(self.PodCIDRs),
		Blocks:   cidrs(held.byNode[self.Name]),
		Pools:    held.names(),
		Underlay: []Underlay{},
		Peers:    make([]*Peer, 0, len(nodes)),
		Problems: []Problem{},
	}
	links, problems := observe(self, answers, cfg.Interface)
	t.Problems = append(t.Problems, problems...)
	p := &Planner{
		cfg: cfg, self: self, pools: held, answers: answers, underlay: links, vteps: map[int]state.MAC{},
	}
	for _, family := range families() {
		if u, ok := p.underlay[family]; ok {
			t.Underlay = append(t.Underlay, u)
		} else if slices.ContainsFunc(addrsOf(p.self), func(a netip.Addr) bool { return familyOf(a) == family }) {
			t.LostFamilies = append(t.LostFamilies, family)
		}
	}
	needs := self.Name
	if cfg.Backend == BackendBGP && len(nodes) == 1 {
		needs = "" // a router: it routes for others, and has no pods
	}
	unusable, problems := check(nodes, needs, cfg.Networks, held)
	t.Problems = append(t.Problems, problems...)
	for _, problem := range unheld {
		t.add(problem)
	}
	var displaced []displacedMetric
	p.metrics, displaced = metrics(nodes, held)
	g := guard{p: p, nodes: nodes, unusable: unusable}
	p.node(&t, used, g)
	if len(cfg.DSCPMarks) > 0 {
		t.Node.Owner = OwnerNode
		t.Node.Host.Tables = append(t.Node.Host.Tables, dscp(cfg, c.Nodes, held))
	}
	for _, n := range nodes {
		if n.Name == self.Name {
			continue
		}
		peer, problems := p.peer(&t, n, unusable)
		t.Peers = append(t.Peers, &peer)
		for _, problem := range problems {
			t.add(problem)
		}
	}
	t.dropDuplicateVTEPs()
	t.dropDuplicateKeys()
	t.Publish = p.publish(used[0])
	if slices.ContainsFunc(used, func(b Backend) bool { return b.Name == "vxlan" }) {
		t.VTEP = vteps{p}.publishedVTEP(nodes)
	}
	p.metrics = nil
	return t, planned{p, displaced, g}, nil
}

// node plans what all peers need. The only node of a cluster needs just the devices of its own backend: they decide the
// pods' MTU.
func (p *Planner) node(t *Topology, used []Backend, g guard) {
	f, single := state.Fragment{Owner: OwnerNode}, len(g.nodes) == 1
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
		if single && len(part.Host.Links)+len(part.Tunnels) == 0 {
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
	f.Host.Tables = append(f.Host.Tables, g.table(encapsulations))
	for i := range t.Tunnels {
		if t.Tunnels[i].Backend == udpName {
			t.Tunnels[i].Sources = g.sources()
		}
	}
	f.Host.Routes = append(f.Host.Routes, p.blackholes(g.unusable)...)
	proxies, bridged := p.bridgePods()
	f.Merge(state.Fragment{Host: proxies})
	t.BridgedFamilies = bridged
	if len(p.cfg.Masquerade) > 0 || p.pools.anyMasquerades() {
		f.Host.Tables = append(f.Host.Tables, masquerade(p.cfg, p.pools))
	}
	if !f.Host.Empty() {
		t.Node = f
	}
}

// peer plans the routes to one peer.
func (p *Planner) peer(t *Topology, n model.Node, unusable map[claim]bool) (Peer, []Problem) {
	peer := Peer{
		Name: n.Name, Addrs: addrsOf(n), PodCIDRs: firstPerFamily(n.PodCIDRs), Blocks: cidrs(p.pools.byNode[n.Name]),
	}
	b, err := p.cfg.Find(p.cfg.backendOf(n))
	if err != nil {
		return peer, []Problem{unknownBackend(n, err)}
	}
	peer.Backend = b.Name
	var problems []Problem
	if len(n.PodCIDRs) == 0 && len(p.pools.all) == 0 {
		problems = append(problems, Problem{
			[]string{n.Name}, fmt.Sprintf("node %s has no podCIDR", n.Name), "set spec.podCIDRs of the Node",
		})
	}
	for _, cidr := range peer.PodCIDRs {
		if unusable[claim{n.Name, cidr, ofNode}] || b.Peer == nil {
			continue
		}
		part, problem := b.Peer(p, n, cidr)
		if p.cfg.Backend == "wireguard" && b.Name != p.cfg.Backend {
			part, problem = BackendState{}, &Problem{
				[]string{n.Name},
				fmt.Sprintf("node %s uses %s, and this node encrypts: packets for it are refused", n.Name, b.Name),
				"configure backend wireguard on both",
			}
		}
		if problem != nil {
			t.addPart(&peer, p.closed(cidr), nil)
		}
		problems = append(problems, t.addPart(&peer, part, problem)...)
	}
	for _, s := range p.pools.byNode[n.Name] {
		if unusable[claim{n.Name, s.cidr, ofPool}] {
			continue
		}
		part, problem := p.block(b, n, s)
		if problem != nil {
			t.addPart(&peer, p.closed(s.cidr), nil)
		}
		problems = append(problems, t.addPart(&peer, part, problem)...)
	}
	return peer, problems
}

// closed returns the routes to a prefix of a peer that is not reached. With WireGuard they refuse packets, which would
// otherwise take the default route in plain text.
func (p *Planner) closed(cidr netip.Prefix) BackendState {
	if p.cfg.Backend != "wireguard" {
		return BackendState{}
	}
	return BackendState{Host: state.Space{Routes: []state.Route{refusing(p.Route(cidr), unreachable)}}}
}

// addPart adds a prefix's part to a peer, or returns the problem.
func (t *Topology) addPart(peer *Peer, part BackendState, problem *Problem) []Problem {
	if problem != nil {
		return []Problem{*problem}
	}
	if !peer.IsReached() {
		peer.SetHost(part.Host, part.Effects) // most have one prefix, and there are thousands
	} else {
		all, f := peer.Fragment(), state.Fragment{Host: part.Host, Effects: part.Effects}
		f.Host.Neighs = slices.DeleteFunc(f.Host.Neighs, func(n state.Neigh) bool { return slices.Contains(all.Host.Neighs, n) })
		f.Host.FDBs = slices.DeleteFunc(f.Host.FDBs, func(n state.FDB) bool { return slices.Contains(all.Host.FDBs, n) })
		all.Merge(f)
		peer.SetHost(all.Host, all.Effects)
	}
	t.Tunnels = withTunnels(t.Tunnels, part.Tunnels)
	return part.Problems
}

// unknownBackend returns the problem of a peer whose backend this node does not have.
func unknownBackend(n model.Node, err error) Problem {
	problem := Problem{[]string{n.Name}, fmt.Sprintf("node %s: %s", n.Name, err), ""}
	var fault *model.Error
	if errors.As(err, &fault) {
		problem.Message, problem.Hint = fmt.Sprintf("node %s: %s", n.Name, fault.Msg), fault.Hint
	}
	return problem
}

func findSelf(c *model.Cluster) (model.Node, bool) {
	i := slices.IndexFunc(c.Nodes, func(n model.Node) bool { return n.Name == c.Self })
	if i < 0 {
		return model.Node{}, false
	}
	return c.Nodes[i], true
}
