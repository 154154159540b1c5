// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// world is a healthy cluster of two nodes with a pod each, whose kernels it answers for.
type world struct {
	six, vxlan, bridge, sameNode bool
	hosts                        bool // host endpoints decide about packets
	protocol                     model.Protocol
	wireMTU                      int
}

func drawWorld(t *rapid.T) world {
	return world{
		six: rapid.Bool().Draw(t, "six"), vxlan: rapid.Bool().Draw(t, "vxlan"), bridge: rapid.Bool().Draw(t, "bridge"),
		sameNode: rapid.Bool().Draw(t, "same node"), hosts: rapid.Bool().Draw(t, "hosts"),
		protocol: rapid.SampledFrom([]model.Protocol{"", model.TCP, model.UDP}).Draw(t, "protocol"),
		wireMTU:  rapid.SampledFrom([]int{1450, 1500, 9000}).Draw(t, "wire MTU"),
	}
}

func (w world) addr(node, host int) netip.Addr {
	if w.six {
		return netip.MustParseAddr(fmt.Sprintf("fd42::%d:%d", node, host))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.42.%d.%d", node, host))
}

func (w world) wire(node int) netip.Addr {
	if w.six {
		return netip.MustParseAddr(fmt.Sprintf("fd18::%d", node))
	}
	return netip.MustParseAddr(fmt.Sprintf("172.18.0.%d", node))
}

func (w world) cidr(node int) netip.Prefix {
	bits := 24
	if w.six {
		bits = 112
	}
	return netip.PrefixFrom(w.addr(node, 0), bits)
}

func (w world) tunnelMTU() int {
	if w.six {
		return w.wireMTU - 70
	}
	return w.wireMTU - 50
}

func (w world) podMTU() int {
	if w.vxlan {
		return w.tunnelMTU()
	}
	return w.wireMTU
}

// out is the interface to the other node.
func (w world) out() string {
	if w.vxlan {
		return "flannel.1"
	}
	return "eth0"
}

// end is the pod of a node: number 1 or 2.
func (w world) end(number int) explain.End {
	node := number
	if w.sameNode {
		node = 1
	}
	return explain.End{
		Kind: explain.PodEnd, Name: fmt.Sprintf("default/p%d", number), Node: fmt.Sprintf("node%d", node),
		Addr: w.addr(node, number+1), Stage: "done",
		Interface: explain.Interface{Name: "eth0", HostLink: fmt.Sprintf("cali%d", number)},
	}
}

func (w world) input() explain.Input {
	in := explain.Input{
		From: w.end(1), To: w.end(2), Protocol: w.protocol, Answers: explain.Answers{}, Nodes: map[string]explain.Node{},
	}
	if w.protocol != "" {
		in.Port = 80
	}
	for n := 1; n <= 2; n++ {
		other := 3 - n
		name := fmt.Sprintf("node%d", n)
		in.Nodes[name] = explain.Node{Name: name, Addrs: []netip.Addr{w.wire(n)}, Policy: true, Hosts: w.hosts, Peers: []explain.Peer{{
			Name:  fmt.Sprintf("node%d", other),
			Paths: []explain.Path{{CIDR: w.cidr(other), Link: w.out(), Tunnel: w.vxlan, Far: w.wire(other)}},
		}}}
	}
	return in
}

func mac(place, link string) state.MAC { return state.SeedMAC(place + " " + link) }

// answer is what the healthy kernels and agents answer.
func (w world) answer(q explain.Question) explain.Answer {
	node := int(q.Node[len(q.Node)-1] - '0')
	switch q.Kind {
	case explain.AskRoute:
		return explain.Answer{Route: w.route(q, node)}
	case explain.AskLink:
		return explain.Answer{Link: w.link(q)}
	case explain.AskNeighbor:
		return explain.Answer{Neighbor: w.neighbor(q, node)}
	case explain.AskFDB:
		return explain.Answer{FDB: []explain.FDB{{Dst: w.wire(3 - node)}}}
	case explain.AskAddress:
		return explain.Answer{Value: "eth0"}
	case explain.AskSysctl:
		if strings.Contains(q.Name, "forward") {
			return explain.Answer{Value: "1"}
		}
		return explain.Answer{Value: "0"}
	case explain.AskSocket:
		return explain.Answer{Sockets: []explain.Socket{{Addr: q.To, Port: q.Port}}}
	case explain.AskChains:
		return explain.Answer{Chains: &explain.Ruleset{}}
	case explain.AskHost:
		return explain.Answer{Hosts: &explain.Hosts{}}
	case explain.AskPolicy:
		return explain.Answer{Policy: []policy.Answer{{Allowed: true, Note: "there is no network policy in the cluster"}}}
	case explain.AskConntrack:
		return explain.Answer{Conntrack: &explain.Conntrack{Count: 10, Max: 1000}}
	case explain.AskNeighborTable:
		return explain.Answer{NeighborTable: &explain.NeighborTable{Entries: 10, Max: 1024}}
	}
	return explain.Answer{Error: "not known"}
}

func (w world) route(q explain.Question, node int) *explain.Route {
	r := &explain.Route{Type: "unicast"}
	gateway := netip.MustParseAddr("169.254.1.1")
	if w.six {
		gateway = netip.MustParseAddr("fe80::1")
	}
	switch {
	case q.Pod != "":
		r.Out, r.Gateway = "eth0", gateway
	case q.To == w.wire(node):
		r.Type = "local"
	case q.To == w.wire(3-node):
		r.Out, r.Source = "eth0", w.wire(node)
	case w.cidr(node).Contains(q.To):
		r.Out = "cni0"
		if !w.bridge {
			for i := 1; i <= 2; i++ {
				if w.end(i).Addr == q.To {
					r.Out = fmt.Sprintf("cali%d", i)
				}
			}
		}
	case w.vxlan:
		r.Out, r.Gateway = "flannel.1", w.addr(3-node, 0)
	default:
		r.Out, r.Gateway = "eth0", w.wire(3-node)
	}
	return r
}

func (w world) link(q explain.Question) *explain.Link {
	l := &explain.Link{Name: q.Link, Up: true, Carrier: true, MTU: w.wireMTU, MAC: mac(q.Node+q.Pod, q.Link)}
	switch {
	case q.Pod != "" || strings.HasPrefix(q.Link, "cali"):
		l.Kind, l.MTU = "veth", w.podMTU()
		if q.Pod == "" && w.bridge {
			l.Master = "cni0"
		}
	case q.Link == "cni0":
		l.Kind, l.MTU = "bridge", w.podMTU()
	case q.Link == "flannel.1":
		l.Kind, l.MTU, l.VNI, l.UDPPort, l.Local = "vxlan", w.tunnelMTU(), 1, 8472, w.wire(int(q.Node[len(q.Node)-1]-'0'))
	}
	return l
}

func (w world) neighbor(q explain.Question, node int) *explain.Neighbor {
	n := &explain.Neighbor{State: "reachable"}
	switch {
	case q.Pod != "":
		link := fmt.Sprintf("cali%s", q.Pod[len(q.Pod)-1:])
		if w.bridge {
			link = "cni0"
		}
		n.MAC = mac(q.Node, link)
	case q.Link == "flannel.1":
		n.MAC = mac(fmt.Sprintf("node%d", 3-node), "flannel.1")
	case q.To == w.wire(3-node):
		n.MAC = mac(fmt.Sprintf("node%d", 3-node), "eth0")
	default:
		for i := 1; i <= 2; i++ {
			if e := w.end(i); e.Addr == q.To {
				n.MAC = mac(e.Node+e.Name, "eth0")
			}
		}
	}
	return n
}

// explained answers all questions, and returns the report with the questions that were put.
func explained(
	t interface{ Fatalf(string, ...any) },
	in explain.Input,
	answer func(explain.Question) explain.Answer,
) (explain.Report, []explain.Question) {
	var asked []explain.Question
	for range 20 {
		r, questions := explain.Explain(in)
		if len(questions) == 0 {
			return r, asked
		}
		for _, q := range questions {
			asked = append(asked, q)
			in.Answers[q] = answer(q)
		}
	}
	t.Fatalf("questions do not end")
	return explain.Report{}, nil
}

// In a healthy cluster nothing is blamed, whatever the network's design.
func TestHealthy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		r, _ := explained(t, w.input(), w.answer)
		if r.State != explain.OK {
			t.Fatalf("%+v: %s: %+v", w, r.State, r.Hops())
		}
	})
}

// A port of a node that leads to a pod is followed to the pod, and its answers back; one that leads to no pod is blocked.
func TestHostPort(t *testing.T) {
	for _, masquerade := range []bool{false, true} {
		w := world{vxlan: true, wireMTU: 1500, protocol: model.TCP}
		in := w.input()
		node := in.Nodes["node2"]
		node.Pods = []explain.Pod{{
			Name: "default/p2", Stage: "done",
			Interfaces: []explain.Interface{{
				Name: "eth0", HostLink: "cali2", Addrs: []netip.Prefix{netip.PrefixFrom(w.addr(2, 3), 32)},
			}},
			HostPorts: []explain.HostPort{{Protocol: model.UDP, Port: 80, To: 1}, {Protocol: model.TCP, Port: 80, To: 8080}},
		}}
		in.Nodes["node2"] = node
		end := explain.End{Kind: explain.NodeEnd, Name: "node2", Node: "node2", Addr: w.wire(2)}
		if other := explain.WithHostPort(in.Nodes, end, model.TCP, 81); len(other.Backends) != 0 {
			t.Errorf("another port: %+v", other)
		}
		in.To = explain.WithHostPort(in.Nodes, end, model.TCP, 80)
		in.To.Masquerade = masquerade
		r, asked := explained(t, in, w.answer)
		listens := slices.ContainsFunc(asked, func(q explain.Question) bool {
			return q.Kind == explain.AskSocket && q.Pod == "default/p2" && q.Port == 8080
		})
		if r.State != explain.OK || !listens {
			t.Errorf("masquerade %v: %s: %+v", masquerade, r.State, r.Hops())
		}
		in.To.Backends, in.To.Policy, in.Answers = nil, "none is ready", explain.Answers{}
		if r, _ := explained(t, in, w.answer); r.State != explain.Blocked || r.Faults()[0].ID != "port" {
			t.Errorf("without a pod: %+v", r.Faults())
		}
	}
}

// TestHosts: the agent is asked about the packet at each node whose interfaces have host endpoints, as it comes there and
// leaves, its answers too; what it answers is the verdict.
func TestHosts(t *testing.T) {
	packet := func(q explain.Question) string {
		p := q.HostPacket()
		return fmt.Sprintf("%s %s>%s %s:%d>%s:%d %v", q.Node, p.In, p.Out, p.Flow.Src, p.Flow.SrcPort, p.Flow.Dst, p.Flow.DstPort, p.Reply)
	}
	node := func(w world, n int) explain.End {
		name := fmt.Sprintf("node%d", n)
		return explain.End{Kind: explain.NodeEnd, Name: name, Node: name, Addr: w.wire(n)}
	}
	w := world{vxlan: true, wireMTU: 1500, protocol: model.TCP, hosts: true}
	for name, c := range map[string]struct {
		from, to explain.End
		want     []string
	}{
		"pod to pod": {w.end(1), w.end(2), []string{
			"node1 cali1>flannel.1 10.42.1.2:0>10.42.2.3:80 false", "node2 flannel.1>cali2 10.42.1.2:0>10.42.2.3:80 false",
			"node2 cali2>flannel.1 10.42.2.3:80>10.42.1.2:0 true", "node1 flannel.1>cali1 10.42.2.3:80>10.42.1.2:0 true",
		}},
		"node to node": {node(w, 1), node(w, 2), []string{
			"node1 >eth0 172.18.0.1:0>172.18.0.2:80 false", "node2 eth0> 172.18.0.1:0>172.18.0.2:80 false",
			"node2 >eth0 172.18.0.2:80>172.18.0.1:0 true", "node1 eth0> 172.18.0.2:80>172.18.0.1:0 true",
		}},
		"node to itself": {node(w, 1), node(w, 1), []string{
			"node1 >lo 172.18.0.1:0>172.18.0.1:80 false", "node1 lo> 172.18.0.1:0>172.18.0.1:80 false",
			"node1 >lo 172.18.0.1:80>172.18.0.1:0 true", "node1 lo> 172.18.0.1:80>172.18.0.1:0 true",
		}},
	} {
		in := w.input()
		in.From, in.To = c.from, c.to
		r, asked := explained(t, in, w.answer)
		var got []string
		for _, q := range asked {
			if q.Kind == explain.AskHost {
				got = append(got, packet(q))
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if r.State != explain.OK || !slices.Equal(got, c.want) {
			t.Errorf("%s: %s: %q", name, r.State, got)
		}
		for _, at := range got {
			in.Answers = explain.Answers{}
			r, _ = explained(t, in, func(q explain.Question) explain.Answer {
				a := w.answer(q)
				if q.Kind == explain.AskHost && packet(q) == at {
					a.Hosts.Sides = []policy.Side{{
						Direction: "ingress", HostEndpoint: "up", Rule: 3,
						Decided: []model.PolicyKey{{Kind: model.KindGlobalNetworkPolicy, Name: "deny"}},
					}}
				}
				return a
			})
			want := "network policy denies ingress of host endpoint up: GlobalNetworkPolicy deny rule 3"
			if f := r.Faults(); r.State != explain.Blocked || len(f) != 1 || f[0].ID != "host" || f[0].Cause != want {
				t.Errorf("%s, denied at %s: %s: %+v", name, at, r.State, f)
			}
		}
	}

	in := w.input()
	far := in.Nodes["node2"]
	far.Pods = []explain.Pod{{
		Name: "default/p2", Stage: "done",
		Interfaces: []explain.Interface{{Name: "eth0", HostLink: "cali2", Addrs: []netip.Prefix{netip.PrefixFrom(w.addr(2, 3), 32)}}},
		HostPorts:  []explain.HostPort{{Protocol: model.TCP, Port: 80, To: 8080}},
	}}
	in.Nodes["node2"] = far
	for _, masquerade := range []bool{false, true} {
		in.To, in.Answers = explain.WithHostPort(in.Nodes, node(w, 2), model.TCP, 80), explain.Answers{}
		in.To.Masquerade = masquerade
		_, asked := explained(t, in, w.answer)
		i := slices.IndexFunc(asked, func(q explain.Question) bool { return q.Kind == explain.AskHost && q.Before.IsValid() })
		if i < 0 || packet(asked[i]) != "node2 eth0>cali2 10.42.1.2:0>172.18.0.2:80 false" ||
			asked[i].HostPacket().Translated.Dst != w.addr(2, 3) || asked[i].HostPacket().Translated.DstPort != 8080 {
			t.Errorf("a port that leads to a pod, masquerade %v: %+v", masquerade, asked[max(i, 0)].HostPacket())
		}
	}
}

// The tap of a VM must be there, up, open and joined, and the guest must answer for its address. What another program has
// connected is found by its usual names.
func TestGuest(t *testing.T) {
	open := &explain.Link{Name: "tap0", Up: true, Carrier: true}
	answers := &explain.Neighbor{State: "reachable", MAC: state.SeedMAC("guest")}
	behindNAT := netip.MustParseAddr("10.0.2.2")
	for name, c := range map[string]struct {
		tap    *explain.Link
		guest  *explain.Neighbor
		change func(*explain.Interface)
		joined string
		// renamed is the pod's interface, in whose place there is a stand-in.
		renamed *explain.Link
		want    explain.State
		cause   string
	}{
		"open":   {tap: open, guest: answers, want: explain.OK},
		"gone":   {want: explain.Blocked, cause: "the VM's tap is gone"},
		"down":   {tap: &explain.Link{Name: "tap0", Carrier: true}, want: explain.Blocked, cause: "the VM's tap is down"},
		"closed": {tap: &explain.Link{Name: "tap0", Up: true}, want: explain.Blocked, cause: "no hypervisor has the VM's tap open"},
		"without a lease": {
			tap: open, guest: &explain.Neighbor{State: "incomplete"}, want: explain.Suspect,
			cause: "the guest does not answer for its address",
		},
		"behind NAT": {
			tap: open, guest: answers, want: explain.OK,
			change: func(i *explain.Interface) { i.Leases, i.LeaseLink = []netip.Addr{behindNAT}, "k6t-eth0" },
		},
		"behind NAT, without a lease": {
			tap: open, want: explain.Suspect, cause: "the guest does not answer for its address 10.0.2.2",
			change: func(i *explain.Interface) { i.Leases, i.LeaseLink = []netip.Addr{behindNAT}, "k6t-eth0" },
		},
		"joined": {
			tap: open, guest: answers, joined: "as recorded", want: explain.OK,
			change: func(i *explain.Interface) { i.Joined = true },
		},
		"not joined": {
			tap: open, guest: answers, want: explain.Blocked, cause: "tap0 and eth0 are not joined",
			change: func(i *explain.Interface) { i.Joined = true },
		},
		"on the node": {
			tap: open, guest: answers, want: explain.OK, change: func(i *explain.Interface) { i.TapOnNode = true },
		},
		"connected by another program": {
			tap: open, guest: answers, want: explain.OK, change: func(i *explain.Interface) { i.Tap = "" },
		},
		"in a bridge, whose gateway does not answer": {
			tap:   &explain.Link{Name: "tap0", Up: true, Carrier: true, Master: "k6t-eth0"},
			guest: answers, want: explain.Blocked, cause: "has no route to 169.254.1.1",
		},
		"whose interface is a port of a bridge": {
			tap: open, guest: answers, want: explain.OK, renamed: &explain.Link{Name: "eth0-nic", Up: true, Carrier: true},
		},
		"whose interface is a port of a bridge and down": {
			tap: open, guest: answers, want: explain.Blocked, renamed: &explain.Link{Name: "eth0-nic"},
			cause: "the pod's interface is down",
		},
		"not connected by another program": {
			want: explain.Unknown, cause: "the pod has no tap0", change: func(i *explain.Interface) { i.Tap = "" },
		},
	} {
		for _, end := range []int{1, 2} {
			w := world{wireMTU: 1500}
			in := w.input()
			for _, e := range []*explain.End{&in.From, &in.To} {
				if e.Name == w.end(end).Name {
					e.Interface.VM, e.Interface.Tap = true, "tap0"
					if c.change != nil {
						c.change(&e.Interface)
					}
				}
			}
			r, _ := explained(t, in, func(q explain.Question) explain.Answer {
				switch {
				case q.Kind == explain.AskResolve:
					if (q.Link == "k6t-eth0") != (q.To == behindNAT) || q.Link == "tap0" && !q.To.Is6() {
						t.Errorf("%s: resolves %s on %s", name, q.To, q.Link)
					}
					return explain.Answer{Neighbor: c.guest}
				case q.Kind == explain.AskRoute && q.To.String() == "169.254.1.1":
					return explain.Answer{Route: &explain.Route{Errno: "ENETUNREACH"}}
				case q.Kind == explain.AskJoin:
					return explain.Answer{Value: c.joined}
				case q.Link == "tap0":
					if (q.Pod == "") != (name == "on the node") {
						t.Errorf("%s: asks for the tap of %q", name, q.Pod)
					}
					return explain.Answer{Link: c.tap}
				case c.renamed != nil && q.Kind == explain.AskLink && q.Pod == w.end(end).Name && q.Link == "eth0":
					return explain.Answer{Link: &explain.Link{Name: "eth0"}}
				case q.Link == "eth0-nic":
					return explain.Answer{Link: c.renamed}
				}
				return w.answer(q)
			})
			found := c.cause == "" || slices.ContainsFunc(r.Hops(), func(h explain.Hop) bool {
				return h.State == c.want && strings.Contains(h.Cause, c.cause)
			})
			if r.State != c.want || !found {
				t.Errorf("%s at %d: %s: %+v", name, end, r.State, r.Hops())
			}
		}
	}
}

// What other programs attach to interfaces and bridges decides, too, at the place where the packet meets it.
func TestOtherPlaces(t *testing.T) {
	drop := func(family, hook string, devices ...string) explain.Chain {
		return explain.Chain{
			Family: family, Table: "fw", Name: "c", Hook: hook, Type: "filter", Policy: "accept", Devices: devices,
			Rules: []explain.Rule{{Handle: 1, Text: "drop"}},
		}
	}
	far, routed := world{vxlan: true, wireMTU: 1500}, world{wireMTU: 1500}
	bridged, oneBridge := world{bridge: true, wireMTU: 1500}, world{bridge: true, sameNode: true, wireMTU: 1500}
	for name, c := range map[string]struct {
		w         world
		node, pod string
		chain     explain.Chain
		program   string // the interface of a program
		where     string // of the first hop that is not ok; empty: all are
	}{
		"arriving at the wire":         {far, "node2", "", drop("netdev", "ingress", "eth0"), "", "node2"},
		"arriving, inet":               {far, "node2", "", drop("inet", "ingress", "lo", "eth*"), "", "node2"},
		"arriving at another":          {far, "node2", "", drop("netdev", "ingress", "eth1"), "", ""},
		"leaving":                      {far, "node1", "", drop("netdev", "egress", "eth0"), "", "node1"},
		"leaving into the tunnel":      {far, "node1", "", drop("netdev", "egress", "flannel.1"), "", "node1"},
		"arriving from the pod":        {routed, "node1", "", drop("netdev", "ingress", "cali1"), "", "node1"},
		"in the sending pod":           {routed, "node1", "default/p1", drop("inet", "output"), "", "default/p1 on node1"},
		"in the receiving pod":         {routed, "node2", "default/p2", drop("inet", "input"), "", "default/p2 on node2"},
		"at a port":                    {bridged, "node1", "", drop("netdev", "ingress", "cali1"), "", "node1"},
		"leaving a port":               {bridged, "node2", "", drop("netdev", "egress", "cali2"), "", "node2"},
		"in the bridge":                {bridged, "node1", "", drop("bridge", "input"), "", "node1"},
		"in the bridge, forward":       {bridged, "node1", "", drop("bridge", "forward"), "", ""},
		"between ports":                {oneBridge, "node1", "", drop("bridge", "forward"), "", "node1"},
		"between ports, input":         {oneBridge, "node1", "", drop("bridge", "input"), "", ""},
		"bridge without ports of pods": {routed, "node1", "", drop("bridge", "prerouting"), "", ""},
		"program at the wire":          {routed, "node2", "", explain.Chain{}, "eth0", "node2"},
		"program in the pod":           {routed, "node1", "default/p1", explain.Chain{}, "eth0", "default/p1 on node1"},
	} {
		r, _ := explained(t, c.w.input(), func(q explain.Question) explain.Answer {
			a := c.w.answer(q)
			switch {
			case q.Node != c.node || q.Pod != c.pod:
			case q.Kind == explain.AskChains && c.program == "":
				a.Chains = &explain.Ruleset{Chains: []explain.Chain{c.chain}}
			case q.Kind == explain.AskLink && q.Link == c.program:
				a.Link.Programs = []string{"an XDP program"}
			}
			return a
		})
		first := explain.Hop{}
		for _, h := range r.Hops() {
			if h.State != explain.OK {
				first = h
				break
			}
		}
		want := explain.OK
		switch {
		case c.program != "":
			want = explain.Unknown
		case c.where != "":
			want = explain.Blocked
		}
		if r.State != want || first.Where != c.where {
			t.Errorf("%s: %s at %q: %+v", name, r.State, first.Where, first)
		}
	}
}

// TestLearnedPath: a route of BGP may lead over any of several links to a router, and nothing is wrong with that.
func TestLearnedPath(t *testing.T) {
	w := world{wireMTU: 1500}
	in := w.input()
	for name, n := range in.Nodes {
		n.Peers[0].Paths[0].Link, n.Peers[0].Paths[0].Far, n.Peers[0].Paths[0].Learned = "eth7", netip.Addr{}, true
		in.Nodes[name] = n
	}
	r, _ := explained(t, in, w.answer)
	if r.State != explain.OK {
		t.Errorf("%s: %+v", r.State, r.Faults())
	}
}

// TestUnusedAddress: packets to an address of another node's prefix that no pod has go to that node, and not outside of the
// cluster; what becomes of them there is what its kernel says.
func TestUnusedAddress(t *testing.T) {
	for name, c := range map[string]struct {
		w     world
		route explain.Route // of node2
		state explain.State
		cause string
	}{
		"routed":      {world{wireMTU: 1500}, explain.Route{Errno: "ENETUNREACH"}, explain.Blocked, "node2 has no route to 10.42.2.77"},
		"in a tunnel": {world{vxlan: true, wireMTU: 1500}, explain.Route{Type: "unreachable"}, explain.Blocked, "a route of node2 makes 10.42.2.77 unreachable"},
		"on a bridge": {world{bridge: true, wireMTU: 1500}, explain.Route{Type: "unicast", Out: "cni0"}, explain.Unknown, "no pod that the agents know has 10.42.2.77, an address of node2: it leaves over cni0"},
		"the node's":  {world{vxlan: true, wireMTU: 1500}, explain.Route{Type: "local"}, explain.OK, ""},
	} {
		in := c.w.input()
		in.To, in.OneWay = explain.End{Kind: explain.OutsideEnd, Name: "10.42.2.77", Addr: c.w.addr(2, 77)}, true
		r, _ := explained(t, in, func(q explain.Question) explain.Answer {
			if q.Kind == explain.AskRoute && q.Node == "node2" && q.To == in.To.Addr {
				return explain.Answer{Route: &c.route}
			}
			return c.w.answer(q)
		})
		last := explain.Hop{}
		for _, h := range r.Forward {
			if h.Cause != "" {
				last = h
			}
		}
		if r.State != c.state || last.Cause != c.cause || c.cause != "" && !strings.HasSuffix(last.Where, "node2") {
			t.Errorf("%s: %s at %s, %q; want %s, %q: %+v", name, r.State, last.Where, last.Cause, c.state, c.cause, r.Forward)
		}
		if r.To.Node != "" {
			t.Errorf("%s: the report is about %+v", name, r.To)
		}
	}
}

// Without one of the answers nothing is ok, whichever it is; and with any other answer nothing panics, questions end, and
// each hop has a judgment.
func TestAnyAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		_, asked := explained(t, w.input(), w.answer)
		lost := rapid.SampledFrom(asked).Draw(t, "lost")
		r, _ := explained(t, w.input(), func(q explain.Question) explain.Answer {
			if q == lost {
				return explain.Answer{Error: "lost"}
			}
			return w.answer(q)
		})
		if r.State == explain.OK {
			t.Fatalf("ok without the answer to %s", lost)
		}
		if lost.Kind != explain.AskNeighbor { // without an entry the kernel resolves it
			r, _ = explained(t, w.input(), func(q explain.Question) explain.Answer {
				if q == lost {
					return explain.Answer{}
				}
				return w.answer(q)
			})
			if r.State == explain.OK {
				t.Fatalf("ok with an empty answer to %s", lost)
			}
		}
		broken := rapid.SliceOfDistinct(
			rapid.SampledFrom(asked),
			func(q explain.Question) explain.Question { return q },
		).Draw(t, "broken")
		r, _ = explained(t, w.input(), func(q explain.Question) explain.Answer {
			for _, b := range broken {
				if q == b {
					return anyAnswer(t)
				}
			}
			return w.answer(q)
		})
		for _, h := range r.Hops() {
			if h.State == "" || h.State != explain.OK && h.Cause == "" {
				t.Fatalf("hop without a judgment: %+v", h)
			}
		}
	})
}

// anyAnswer is an answer of any kind, whatever the question.
func anyAnswer(t *rapid.T) explain.Answer {
	link := func() *explain.Link {
		if rapid.Bool().Draw(t, "no link") {
			return nil
		}
		return &explain.Link{
			Name:    "x",
			Up:      rapid.Bool().Draw(t, "up"),
			Carrier: rapid.Bool().Draw(t, "carrier"),
			Master: rapid.SampledFrom(
				[]string{"", "br0"},
			).Draw(t, "master"),
			Kind: rapid.SampledFrom([]string{"", "vxlan", "bridge", "tun"}).Draw(t, "kind"),
		}
	}
	a := explain.Answer{
		Error: rapid.SampledFrom(
			[]string{"", "broken"},
		).Draw(t, "error"),
		Link:  link(),
		Value: rapid.SampledFrom([]string{"", "0", "1", "2", "eth9"}).Draw(t, "value"),
	}
	if rapid.Bool().Draw(t, "route") {
		a.Route = &explain.Route{
			Errno: rapid.SampledFrom(
				[]string{"", "EINVAL", "ENETUNREACH", "EHOSTUNREACH", "EACCES", "EXDEV", "ENODEV"},
			).Draw(t, "errno"),
			Type: rapid.SampledFrom([]string{"", "unicast", "local", "blackhole", "prohibit"}).Draw(t, "type"),
			Out:  rapid.SampledFrom([]string{"", "eth0", "flannel.1", "cali1", "x"}).Draw(t, "out"),
		}
	}
	if rapid.Bool().Draw(t, "neighbor") {
		a.Neighbor = &explain.Neighbor{State: rapid.SampledFrom([]string{"", "failed", "reachable", "none"}).Draw(t, "state")}
	}
	if rapid.Bool().Draw(t, "chains") {
		a.Chains = &explain.Ruleset{
			Chains: []explain.Chain{
				{Hook: "forward", Policy: "drop", Rules: []explain.Rule{{Text: rapid.String().Draw(t, "rule")}}},
			},
		}
	}
	return a
}

// Single facts change the judgment of one hop, whose cause names them.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		world  world
		change func(q explain.Question, a *explain.Answer)
		state  explain.State
		cause  string
	}{
		"connection table": {world{}, func(q explain.Question, a *explain.Answer) {
			if a.Conntrack != nil && q.Node == "node2" {
				a.Conntrack = &explain.Conntrack{Count: 1000, Max: 1000}
			}
		}, explain.Blocked, "the connection table is full"},
		"connection table nearly full": {world{}, func(_ explain.Question, a *explain.Answer) {
			if a.Conntrack != nil {
				a.Conntrack = &explain.Conntrack{Count: 950, Max: 1000}
			}
		}, explain.Suspect, "nearly full"},
		"neighbor table": {world{six: true}, func(_ explain.Question, a *explain.Answer) {
			if a.NeighborTable != nil {
				a.NeighborTable = &explain.NeighborTable{Entries: 1100, Permanent: 50, Max: 1024, Full: 7}
			}
		}, explain.Suspect, "the neighbor table is full: it has refused 7"},
		"VNI": {world{vxlan: true}, func(q explain.Question, a *explain.Answer) {
			if q.Link == "flannel.1" && q.Node == "node2" && a.Link != nil {
				a.Link.VNI = 2
			}
		}, explain.Blocked, "the VXLAN devices differ"},
		"VXLAN device gone": {world{vxlan: true}, func(q explain.Question, a *explain.Answer) {
			if q.Link == "flannel.1" && q.Node == "node2" && q.Kind == explain.AskLink {
				a.Link = nil
			}
		}, explain.Blocked, "nothing unwraps the packets"},
		"FDB": {world{vxlan: true}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskFDB && q.Node == "node1" {
				a.FDB = nil
			}
		}, explain.Blocked, "does not know to which node frames"},
		"FDB of another node": {world{vxlan: true}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskFDB && q.Node == "node1" {
				a.FDB[0].Dst = netip.MustParseAddr("172.18.0.9")
			}
		}, explain.Blocked, "to 172.18.0.9, and its node has 172.18.0.2"},
		"tunnel's neighbor": {world{vxlan: true}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskNeighbor && q.Link == "flannel.1" && q.Node == "node1" {
				a.Neighbor = nil
			}
		}, explain.Blocked, "has no MAC address for"},
		"tunnel's MTU": {world{vxlan: true, wireMTU: 1500}, func(q explain.Question, a *explain.Answer) {
			if q.Link == "eth0" && q.Pod == "" && a.Link != nil {
				a.Link.MTU = 1400
			}
		}, explain.Suspect, "eth0 carries 1400"},
		"node's neighbor": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskNeighbor && q.Link == "eth0" && q.Pod == "" && q.Node == "node1" {
				a.Neighbor.State = "failed"
			}
		}, explain.Blocked, "gets no answer from 172.18.0.2"},
		"another host's MAC address": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskNeighbor && q.Link == "eth0" && q.Pod == "" && q.Node == "node1" {
				a.Neighbor.MAC = mac("intruder", "eth0")
			}
		}, explain.Blocked, "node1 sends to MAC address"},
		"carrier": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Link == "eth0" && q.Pod == "" && q.Node == "node1" && a.Link != nil {
				a.Link.Carrier = false
			}
		}, explain.Blocked, "is down or has no carrier"},
		"pod's neighbor on its node": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskNeighbor && q.Link == "cali2" {
				a.Neighbor.MAC = mac("earlier", "pod")
			}
		}, explain.Blocked, "and the pod has"},
		"no route in the pod": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskRoute && q.Pod == "default/p2" {
				a.Route = &explain.Route{Errno: "ENETUNREACH"}
			}
		}, explain.Blocked, "the pod has no route to"},
		"pod's address": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskAddress && q.Pod == "default/p1" {
				a.Value = ""
			}
		}, explain.Blocked, "the pod does not have its address"},
		"node's end is gone": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Link == "cali1" && q.Kind == explain.AskLink {
				a.Link = nil
			}
		}, explain.Blocked, "the node's end of the pod's interface is gone"},
		"node's end is down": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Link == "cali2" && a.Link != nil {
				a.Link.Up = false
			}
		}, explain.Blocked, "the node's end of the pod's interface is down"},
		"policy": {world{}, func(q explain.Question, a *explain.Answer) {
			if q.Kind == explain.AskPolicy && q.Node == "node2" {
				a.Policy = []policy.Answer{{Sides: []policy.Side{{
					Direction: "ingress", Pod: model.PodRef{Namespace: "default", Name: "p2"},
					Decided: []model.PolicyKey{{Kind: "NetworkPolicy", Namespace: "default", Name: "deny"}},
				}}}}
			}
		}, explain.Blocked, "network policy denies it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.world
			w.protocol, w.wireMTU = model.TCP, max(w.wireMTU, 1500)
			r, _ := explained(t, w.input(), func(q explain.Question) explain.Answer {
				a := w.answer(q)
				c.change(q, &a)
				return a
			})
			faults := r.Faults()
			if r.State != c.state || len(faults) == 0 || !strings.Contains(faults[0].Cause, c.cause) || faults[0].Object == "" {
				t.Fatalf("%s: %+v", r.State, faults)
			}
			for _, f := range faults[1:] {
				if f.Object != faults[0].Object && !strings.Contains(f.Cause, c.cause) {
					t.Errorf("also blames %s: %s", f.ID, f.Cause)
				}
			}
			var text strings.Builder
			r.Text(&text, false)
			if !strings.Contains(text.String(), c.cause) || !strings.Contains(text.String(), faults[0].Object) {
				t.Errorf("the text does not say it:\n%s", &text)
			}
		})
	}
}

// A service without endpoints is the end of the path; with some its first one is explained.
func TestService(t *testing.T) {
	w := world{protocol: model.TCP, wireMTU: 1500}
	in := w.input()
	backend := in.To
	in.To = explain.End{Kind: explain.ServiceEnd, Name: "default/s", Addr: netip.MustParseAddr("10.96.0.7")}
	r, _ := explained(t, in, w.answer)
	if f := r.Faults(); r.State != explain.Blocked || len(f) != 1 || f[0].Object != "service default/s" {
		t.Errorf("%+v", r)
	}
	in = w.input()
	in.To = explain.End{Kind: explain.ServiceEnd, Name: "default/s", Backends: []explain.End{backend}, BackendPort: 80}
	if r, _ := explained(t, in, w.answer); r.State != explain.OK {
		t.Errorf("%+v", r.Hops())
	}
}

// Questions with their answers can be kept and explained elsewhere.
func TestAnswersInJSON(t *testing.T) {
	w := world{vxlan: true, protocol: model.TCP, wireMTU: 1500}
	in := w.input()
	want, _ := explained(t, in, w.answer)
	b, err := json.Marshal(in.Answers)
	if err != nil {
		t.Fatal(err)
	}
	in.Answers = nil
	if err := json.Unmarshal(b, &in.Answers); err != nil {
		t.Fatal(err)
	}
	got, questions := explain.Explain(in)
	if len(questions) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d questions; got %+v", len(questions), got)
	}
}

// Names are those of pods, nodes and addresses.
func TestResolve(t *testing.T) {
	pod := explain.Pod{Name: "default/a", Stage: "done", Interfaces: []explain.Interface{
		{Name: "net1", Network: "default/lan", Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.9.2/32")}},
		{Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.42.1.2/32"), netip.MustParsePrefix("fd42::2/128")}},
	}}
	nodes := map[string]explain.Node{"node1": {
		Name: "node1", Addrs: []netip.Addr{netip.MustParseAddr("172.18.0.1")},
		Pods: []explain.Pod{pod, {Name: "default/new", Stage: "pending"}},
	}}
	for _, c := range []struct{ name, network, want string }{
		{"default/a", "", "pod default/a (10.42.1.2) pod default/a (fd42::2)"},
		{"default/a", "default/lan", "pod default/a (192.168.9.2)"},
		{"10.42.1.2", "", "pod default/a (10.42.1.2)"},
		{"[fd42::2]", "", "pod default/a (fd42::2)"},
		{"192.168.9.2", "", "pod default/a (192.168.9.2)"},
		{"node1", "", "node node1 (172.18.0.1)"},
		{"172.18.0.1", "", "node node1 (172.18.0.1)"},
		{"192.0.2.1", "", "192.0.2.1"},
		{"default/a", "default/other", ""},
		{"default/b", "", ""},
	} {
		var got []string
		for _, e := range explain.Resolve(nodes, c.name, c.network) {
			got = append(got, e.String())
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s in %q: %q, want %q", c.name, c.network, text, c.want)
		}
	}
	if ends := explain.Resolve(nodes, "default/new", ""); len(ends) != 1 || ends[0].Stage != "pending" {
		t.Errorf("a pod without a network: %+v", ends)
	}
}
