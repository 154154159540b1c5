// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

// The ranges of a rule contain exactly the prefixes with which it agrees, as Calico's reference words it.
func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		six := rapid.Bool().Draw(t, "six")
		bits, draw := 32, 4
		if six {
			bits, draw = 128, 16
		}
		prefix := func(name string) netip.Prefix {
			b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0x80, 0xff, 10}), draw, draw).Draw(t, name)
			a, _ := netip.AddrFromSlice(b)
			return netip.PrefixFrom(a, rapid.IntRange(0, bits).Draw(t, name+" bits")).Masked()
		}
		r := model.BGPFilterRule{
			Six: six, CIDR: prefix("cidr"), Match: rapid.SampledFrom([]string{"", "Equal", "NotEqual", "In", "NotIn"}).Draw(t, "match"),
			MinLength: rapid.IntRange(-1, bits).Draw(t, "min"), MaxLength: rapid.IntRange(-1, bits).Draw(t, "max"),
		}
		p := prefix("route")
		if rapid.Bool().Draw(t, "near") { // random prefixes are seldom within each other
			p = netip.PrefixFrom(r.CIDR.Addr(), rapid.IntRange(0, bits).Draw(t, "near bits")).Masked()
		}
		in := r.CIDR.Bits() <= p.Bits() && r.CIDR.Contains(p.Addr())
		want := map[string]bool{"": true, "Equal": p == r.CIDR, "NotEqual": p != r.CIDR, "In": in, "NotIn": !in}[r.Match] &&
			(r.MinLength < 0 || p.Bits() >= r.MinLength) && (r.MaxLength < 0 || p.Bits() <= r.MaxLength)
		got := slices.ContainsFunc(rangesOf(r), func(o Range) bool { return o.Contains(p) })
		if got != want {
			t.Fatalf("%s %s %d..%d: %s: %t, want %t", r.Match, r.CIDR, r.MinLength, r.MaxLength, p, got, want)
		}
	})
}

func named(name, addr string, more ...string) model.Node {
	n := model.Node{
		Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: map[string]string{"name": name},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244." + strings.TrimPrefix(name, "n") + ".0/24")},
	}
	for _, id := range more {
		n.BGP = &model.NodeBGP{ClusterID: netip.MustParseAddr(id)}
	}
	return n
}

func expression(t *testing.T, text string) model.Expression {
	t.Helper()
	e, err := model.ParseExpression(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// peersOf returns the planned sessions as text: address, AS, and what is special.
func peersOf(s Speaker) string {
	var out []string
	for _, p := range s.Peers {
		text := p.Where()
		if p.Client {
			text += " client"
		}
		if p.Passive {
			text += " passive"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestSessions(t *testing.T) {
	no := false
	nodes := []model.Node{named("n1", "10.9.0.1"), named("n2", "10.9.0.2"), named("n3", "10.9.0.3", "244.0.0.1")}
	reflectors := model.BGPPeer{Name: "rr", NodeSelector: expression(t, "name != 'n3'"), PeerSelector: expression(t, "name == 'n3'")}
	for _, c := range []struct {
		name, self string
		facts      Facts
		want       string
		problem    string
	}{
		{"no object asks for a mesh", "n1", Facts{}, "", ""},
		{"a mesh of all but reflectors", "n1", Facts{Backend: true}, "10.9.0.2", ""},
		{"the higher address is passive", "n2", Facts{Backend: true}, "10.9.0.1 passive", ""},
		{"a reflector is not in the mesh", "n3", Facts{Backend: true}, "", ""},
		{"the mesh is off", "n1", Facts{Backend: true, Configurations: []model.BGPConfiguration{{Name: "default", Mesh: &no}}}, "", ""},
		{"the object turns it on", "n1", Facts{Configurations: []model.BGPConfiguration{{Name: "default"}}}, "10.9.0.2", ""},
		{"a client has a session with its reflector", "n1", Facts{Peers: []model.BGPPeer{reflectors}}, "10.9.0.3", ""},
		{
			"and the reflector with its clients", "n3", Facts{Peers: []model.BGPPeer{reflectors}},
			"10.9.0.1 client passive, 10.9.0.2 client passive", "",
		},
		{
			"unless each side has its object", "n3", Facts{Peers: []model.BGPPeer{{
				Name: "rr", NodeSelector: expression(t, "name != 'n3'"), PeerSelector: expression(t, "name == 'n3'"), OneSided: true,
			}}}, "", "",
		},
		{
			"a node is not its own peer", "n1", Facts{Peers: []model.BGPPeer{{Name: "x", Addr: netip.MustParseAddr("10.9.0.1"), ASN: 1}}},
			"", "10.9.0.1 is an address of node n1 itself",
		},
		{
			"an object for another node", "n1",
			Facts{Peers: []model.BGPPeer{{Name: "x", Node: "n2", Addr: netip.MustParseAddr("10.9.0.9"), ASN: 1}}}, "", "",
		},
		{
			"two ASs of one address", "n1", Facts{Peers: []model.BGPPeer{
				{Name: "a", Addr: netip.MustParseAddr("10.9.0.9"), ASN: 1}, {Name: "b", Addr: netip.MustParseAddr("10.9.0.9"), ASN: 2},
			}}, "10.9.0.9", "cannot be in AS 1 and in AS 2",
		},
		{
			"peers on links, one each", "n1", Facts{Peers: []model.BGPPeer{
				{Name: "a", Interface: "eth2", ASN: 1}, {Name: "b", Interface: "eth1", ASN: 1}, {Name: "c", Interface: "eth1", ASN: 2},
				{Name: "d", Node: "n2", Interface: "eth3", ASN: 1},
			}}, "eth1, eth2", "BGPPeers b and c: eth1 cannot be in AS 1 and in AS 2",
		},
		{
			"a missing password", "n1", Facts{Peers: []model.BGPPeer{
				{Name: "a", Addr: netip.MustParseAddr("10.9.0.9"), ASN: 1, Password: model.SecretKey{Name: "s", Key: "k"}},
			}}, "", "Secret s does not exist",
		},
		{
			"pools that overlap", "n1", Facts{Pools: map[string][]netip.Prefix{
				"a": {netip.MustParsePrefix("10.1.0.0/16")}, "b": {netip.MustParsePrefix("10.1.4.0/24")},
			}}, "", "pools a and b overlap",
		},
		{
			"Services within a pool", "n1", Facts{
				Pools: map[string][]netip.Prefix{"a": {netip.MustParsePrefix("10.1.0.0/16")}},
				Configurations: []model.BGPConfiguration{
					{Name: "default", Mesh: &no, ServiceClusterIPs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}},
				},
			}, "", "overlaps pool a",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.facts.Self, c.facts.Nodes = c.self, nodes
			s, problems, ok := Plan(c.facts)
			if got := peersOf(s); !ok || got != c.want {
				t.Errorf("sessions %q, want %q", got, c.want)
			}
			var text []string
			for _, p := range problems {
				text = append(text, p.String())
			}
			if got := strings.Join(text, "\n"); c.problem == "" && got != "" || !strings.Contains(got, c.problem) {
				t.Errorf("problems %q, want %q", got, c.problem)
			}
		})
	}
}

// Nodes with one router ID cannot have a session: each says which.
func TestSameRouterID(t *testing.T) {
	_, problems, _ := Plan(Facts{Self: "n1", Nodes: []model.Node{named("n1", "10.9.0.1"), named("n2", "10.9.0.1")}})
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "nodes n1 and n2 have the router ID 10.9.0.1") {
		t.Errorf("problems: %v", problems)
	}
}

// Communities of a range are those of the announced prefixes within it.
func TestAnnounced(t *testing.T) {
	s, _, _ := Plan(Facts{
		Self: "n1", Nodes: []model.Node{named("n1", "10.9.0.1")},
		Own: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("10.1.0.0/26")},
		Configurations: []model.BGPConfiguration{{
			Name: "default", ServiceClusterIPs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
			Advertised: []model.BGPAdvertised{{CIDR: netip.MustParsePrefix("10.244.0.0/16"), Communities: []string{"65000:1", "1:2:3"}}},
		}},
	})
	var got []string
	for _, a := range s.Announced {
		got = append(got, strings.TrimSpace(a.Prefix.String()+" "+strings.Join(a.Communities, " ")))
	}
	want := []string{"10.1.0.0/26", "10.96.0.0/12", "10.244.1.0/24 1:2:3 65000:1"}
	if !slices.Equal(got, want) {
		t.Errorf("announced %q, want %q", got, want)
	}
}

// Addresses of Services are announced one by one by nodes with an endpoint if externalTrafficPolicy is Local, and those of
// load balancers whose range is not announced by all nodes.
func TestServiceAddresses(t *testing.T) {
	addrs := func(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }
	prefixes := func(all ...string) (out []netip.Prefix) {
		for _, text := range all {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	service := model.BGPService{ClusterIPs: addrs("10.96.0.5"), ExternalIPs: addrs("192.0.2.5"), LoadBalancerIPs: addrs("198.51.100.5")}
	config := model.BGPConfiguration{
		Name: "default", ServiceClusterIPs: prefixes("10.96.0.0/12"), ServiceExternalIPs: prefixes("192.0.2.0/24"),
		ServiceLoadBalancerIPs: prefixes("198.51.100.0/24"),
	}
	ranges := "10.96.0.0/12 192.0.2.0/24 198.51.100.0/24"
	for _, c := range []struct {
		name        string
		local, here bool
		change      func(*model.BGPConfiguration)
		want        string
	}{
		{name: "Cluster", here: true, want: ranges},
		{name: "Local, endpoints elsewhere", local: true, want: ranges},
		{
			name: "Local, an endpoint here", local: true, here: true,
			want: "10.96.0.0/12 10.96.0.5/32 192.0.2.0/24 192.0.2.5/32 198.51.100.0/24 198.51.100.5/32",
		},
		{
			name: "no aggregation", change: func(c *model.BGPConfiguration) { c.NoAggregation = true },
			want: "10.96.0.0/12 192.0.2.0/24 198.51.100.5/32",
		},
		{
			name: "no aggregation, Local elsewhere", local: true, change: func(c *model.BGPConfiguration) { c.NoAggregation = true },
			want: "10.96.0.0/12 192.0.2.0/24",
		},
		{
			name:   "a range of one address",
			change: func(c *model.BGPConfiguration) { c.ServiceLoadBalancerIPs = prefixes("198.51.100.5/32") },
			want:   "10.96.0.0/12 192.0.2.0/24 198.51.100.5/32",
		},
		{
			name: "a range of one address, Local elsewhere", local: true,
			change: func(c *model.BGPConfiguration) { c.ServiceLoadBalancerIPs = prefixes("198.51.100.5/32") },
			want:   "10.96.0.0/12 192.0.2.0/24",
		},
		{
			name: "no range", local: true, here: true, change: func(c *model.BGPConfiguration) { c.ServiceLoadBalancerIPs = nil },
			want: "10.96.0.0/12 10.96.0.5/32 192.0.2.0/24 192.0.2.5/32",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, cfg := service, config
			s.Local, s.Here = c.local, c.here
			if c.change != nil {
				c.change(&cfg)
			}
			got, problems, _ := Plan(Facts{
				Self: "n1", Nodes: []model.Node{named("n1", "10.9.0.1")}, Configurations: []model.BGPConfiguration{cfg},
				Services: []model.BGPService{s},
			})
			var text []string
			for _, a := range got.Announced {
				text = append(text, a.Prefix.String())
			}
			if strings.Join(text, " ") != c.want || len(problems) > 0 {
				t.Errorf("announced %q, want %q; problems %v", text, c.want, problems)
			}
		})
	}
}

// What lies within a pool that is not exported is announced neither as a node's own prefix nor as a range of Services, and
// no route reflector passes it on. A prefix that only overlaps it is.
func TestUnexported(t *testing.T) {
	p := netip.MustParsePrefix
	s, _, ok := Plan(Facts{
		Self: "n1", Nodes: []model.Node{named("n1", "10.9.0.1")}, Unexported: []netip.Prefix{p("10.1.0.0/16"), p("fd44::/48")},
		Own: []netip.Prefix{p("10.244.1.0/24"), p("10.1.3.0/26"), p("fd44::40/122"), p("10.0.0.0/8")},
		Configurations: []model.BGPConfiguration{
			{Name: "default", ServiceExternalIPs: []netip.Prefix{p("10.1.9.0/24"), p("10.2.0.0/24")}},
		},
	})
	var got []string
	for _, a := range s.Announced {
		got = append(got, a.Prefix.String())
	}
	if want := "10.0.0.0/8 10.2.0.0/24 10.244.1.0/24"; !ok || strings.Join(got, " ") != want {
		t.Errorf("announced %v, want %s", got, want)
	}
	if !slices.ContainsFunc(s.Unexported, func(r Range) bool { return r.Contains(p("10.1.3.0/26")) }) {
		t.Errorf("a route reflector passes on what is not exported: %v", s.Unexported)
	}
}
