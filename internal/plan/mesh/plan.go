// SPDX-License-Identifier: Apache-2.0

package mesh

import (
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
	Vxlan   Vxlan
	// Masquerade are the prefixes of all nodes' pods: what a pod sends to anywhere else has its node's address. None: it
	// keeps its own.
	Masquerade []netip.Prefix
}

// Owners of the fragments.
const (
	OwnerNode = "mesh/node"
	OwnerPeer = "mesh/peer/" // and the peer's name
)

// backend is one row of the table of back ends. A new one is a planner and a row.
type backend struct {
	name string
	// node plans what self needs for any peer at all.
	node func(p *planner) state.Space
	// peer plans what one prefix of a peer needs, or says why it cannot be reached.
	peer func(p *planner, peer model.Node, cidr netip.Prefix) (state.Space, *Problem)
}

func backends() []backend {
	return []backend{
		{name: "host-gw", node: forwarding, peer: gateway},
		{name: "vxlan", node: vxlanNode, peer: vxlanPeer},
	}
}

// planner is what a plan is made of.
type planner struct {
	cfg      Config
	self     model.Node
	underlay map[int]Underlay // by family
	metrics  map[netip.Prefix]uint32
}

// Observe says what must be known of the kernel.
func Observe(c *model.Cluster) []state.Query {
	self, ok := find(c)
	if !ok {
		return nil
	}
	var out []state.Query
	for _, family := range families() {
		if addr, ok := addrOf(self, family); ok {
			out = append(out, state.Query{Space: state.Host, LinkOf: addr})
		}
	}
	return out
}

// Plan plans the mesh of c.Self. It errs when the cluster has no such node or there is no such back end; all else that
// is wrong with the facts is in the topology's problems.
func Plan(c *model.Cluster, cfg Config, answers state.Answers) (Topology, error) {
	b, err := backendOf(cfg)
	if err != nil {
		return Topology{}, err
	}
	self, ok := find(c)
	if !ok {
		return Topology{}, model.Faultf(model.CodeInvalidConf, "add a Node object of that name, or start the agent with the right --node",
			"node %q is not in the cluster", c.Self)
	}
	nodes := slices.Clone(c.Nodes)
	slices.SortFunc(nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) })
	t := Topology{Self: self.Name, Backend: b.name, PodCIDRs: first(self.PodCIDRs), Underlay: []Underlay{}, Peers: []Peer{}, Problems: []Problem{}}
	p := &planner{cfg: cfg, self: self, underlay: map[int]Underlay{}}
	t.Problems = append(t.Problems, p.observe(answers)...)
	for _, family := range families() {
		if u, ok := p.underlay[family]; ok {
			t.Underlay = append(t.Underlay, u)
		}
	}
	unusable, problems := check(nodes, self.Name)
	t.Problems = append(t.Problems, problems...)
	p.metrics = metrics(nodes)
	if len(nodes) > 1 {
		t.Node = state.Fragment{Owner: OwnerNode, Host: b.node(p)}
	}
	if len(cfg.Masquerade) > 0 {
		t.Node.Owner = OwnerNode
		t.Node.Host.Tables = append(t.Node.Host.Tables, masquerade(cfg.Masquerade))
	}
	for _, n := range nodes {
		if n.Name == self.Name {
			continue
		}
		peer, problems := p.peer(b, n, unusable)
		t.Peers = append(t.Peers, peer)
		for _, problem := range problems {
			t.add(problem)
		}
	}
	return t, nil
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

// observe learns the underlay from the kernel's answers.
func (p *planner) observe(answers state.Answers) []Problem {
	var problems []Problem
	for _, family := range families() {
		addr, ok := addrOf(p.self, family)
		if !ok {
			continue
		}
		a := answers[state.Query{Space: state.Host, LinkOf: addr}]
		if !a.Found {
			problems = append(problems, Problem{
				[]string{p.self.Name},
				fmt.Sprintf("node %s: no link holds its own address %s", p.self.Name, addr),
				"put the address on a link, or correct status.addresses of the Node",
			})
			continue
		}
		u := Underlay{Link: a.Link.Name, Address: addr, OnLink: []netip.Prefix{}, MTU: a.Link.MTU}
		for _, have := range a.Addrs {
			prefix := have.Prefix
			if have.Peer.IsValid() {
				prefix = have.Peer
			}
			if familyOf(prefix.Addr()) == family {
				u.OnLink = append(u.OnLink, prefix.Masked())
			}
		}
		slices.SortFunc(u.OnLink, comparePrefix)
		u.OnLink = slices.Compact(u.OnLink)
		p.underlay[family] = u
	}
	return problems
}

// peer plans one peer.
func (p *planner) peer(b backend, n model.Node, unusable map[claim]bool) (Peer, []Problem) {
	peer := Peer{Name: n.Name, Addrs: n.Addrs, PodCIDRs: first(n.PodCIDRs), Fragment: state.Fragment{Owner: OwnerPeer + n.Name}}
	if peer.Addrs == nil {
		peer.Addrs = []netip.Addr{}
	}
	var problems []Problem
	if len(n.PodCIDRs) == 0 {
		problems = append(problems, Problem{[]string{n.Name}, fmt.Sprintf("node %s has no podCIDR", n.Name), "set spec.podCIDRs of the Node"})
	}
	for _, cidr := range peer.PodCIDRs {
		if unusable[claim{n.Name, cidr}] {
			continue
		}
		space, problem := b.peer(p, n, cidr)
		if problem != nil {
			problems = append(problems, *problem)
			continue
		}
		peer.Fragment.Merge(state.Fragment{Host: space})
	}
	return peer, problems
}

func backendOf(cfg Config) (backend, error) {
	var known []string
	for _, b := range backends() {
		if b.name == cfg.Backend || cfg.Backend == "" {
			return b, nil
		}
		known = append(known, b.name)
	}
	return backend{}, model.Faultf(model.CodeInvalidConf, "known: "+strings.Join(known, ", "), "mesh: back end %q is not known", cfg.Backend)
}

func find(c *model.Cluster) (model.Node, bool) {
	i := slices.IndexFunc(c.Nodes, func(n model.Node) bool { return n.Name == c.Self })
	if i < 0 {
		return model.Node{}, false
	}
	return c.Nodes[i], true
}
