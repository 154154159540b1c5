// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// canned returns states of a node with one pod. Those that share a link's name differ in everything else.
func canned() map[string]state.Fragment {
	out := map[string]state.Fragment{"nothing": {}, "ptp": ptp(1), "ptp of another": ptp(2), "bridge": port(1)}

	quiet := port(1)
	quiet.Host.Links[0].Bridge = &state.BridgeAttrs{GroupFwdMask: ptr(8), AgeingTimeSecs: ptr(20)}
	quiet.Host.Links[1].Port = &state.PortAttrs{
		Isolated: state.On(), McastFlood: state.Off(), Flood: state.Off(), BcastFlood: state.Off(), Learning: state.Off(),
		NeighSupp: state.On(),
	}
	quiet.Host.Links[0].Promisc, quiet.Host.Links[0].MTU = state.On(), 1300
	quiet.Host.Addrs = append(quiet.Host.Addrs, state.Addr{Link: "cni0", Prefix: prefix("10.9.0.1/24"), Absent: true})
	out["quiet bridge"] = quiet

	down := ptp(1)
	down.Host.Links[0].Up, down.Pod.Links[0].Up = state.Off(), state.Off()
	down.Host.Routes, down.Pod.Routes, down.Pod.Addrs, down.Host.Addrs = nil, nil, nil, nil
	down.Pod.Addrs = []state.Addr{
		{Link: "eth0", Prefix: prefix("192.0.2.1/24")}, {Link: "eth0", Prefix: prefix("192.0.2.2/24")},
	}
	down.Host.Links[0].AllMulti = state.On()
	out["down"] = down

	neighs := ptp(1)
	mac := neighs.Pod.Links[0].MAC
	neighs.Host.Neighs = []state.Neigh{
		{Link: "veth0001", IP: addr("10.1.0.1"), MAC: mac},
		{Link: "veth0001", IP: addr("fd00:1::3"), MAC: mac},
		{Link: "veth0001", IP: addr("fd00:9::9"), Proxy: true},
		{Link: "veth0001", IP: addr("10.9.9.9"), Proxy: true},
	}
	out["neighbors"] = neighs

	routes := ptp(1)
	link := state.ScopeLink
	routes.Pod.Routes = append(routes.Pod.Routes,
		state.Route{
			Dst: prefix("198.51.100.0/24"), Gw: addr("10.1.255.1"), Link: "eth0", Metric: 7, MTU: 1280, AdvMSS: 1200,
			Src: addr("10.1.0.1"),
		},
		state.Route{Dst: prefix("198.51.100.0/24"), Gw: addr("10.1.255.1"), Link: "eth0", Metric: 8},
		state.Route{Dst: prefix("203.0.113.0/24"), Link: "eth0", Table: 1000, Scope: &link},
		state.Route{Dst: prefix("2001:db8::/32"), Gw: addr("fd00:1::1"), Link: "eth0", Table: 1000, MTU: 1280},
		state.Route{Dst: prefix("203.0.113.7/32"), Gw: addr("203.0.113.1"), Link: "eth0", OnLink: true},
		state.Route{Dst: prefix("192.0.2.0/24"), Gw: addr("fd00:1::1"), Link: "eth0"},
		state.Route{Dst: prefix("100.64.0.0/10"), Type: 6}, state.Route{Dst: prefix("2001:db8:1::/48"), Type: 6},
	)
	routes.Pod.Rules = []state.Rule{
		{Priority: 500, From: prefix("10.1.0.1/32"), Table: 1000},
		{Priority: 501, From: prefix("fd00:1::3/128"), Table: 1000, IPv6: true},
		{Priority: 502, To: prefix("203.0.113.0/24"), IIf: "eth0", Mark: 0x10, Mask: 0xf0, Table: 1000},
		{Priority: 503, OIf: "eth0", Mark: 7, Table: 254},
	}
	out["routes"] = routes

	var lo state.Fragment
	lo.Pod.Links = []state.Link{{Name: "lo", Up: state.On()}}
	lo.Pod.Addrs = []state.Addr{
		{Link: "lo", Prefix: prefix("192.0.2.9/32")}, {Link: "lo", Prefix: prefix("2001:db8::9/128"), NoDAD: true},
	}
	lo.Host.Sysctls = []state.Sysctl{
		{Name: "net/ipv4/conf/lo/rp_filter", Value: "2"}, {Name: "net/ipv6/conf/lo/accept_ra", Value: "0"},
	}
	out["lo"] = lo

	veths := state.Fragment{}
	veths.Host.Links = []state.Link{
		{Name: "left", Kind: state.Veth, Up: state.On(), Peer: &state.Peer{Space: state.Host, Name: "cni0"}},
		{Name: "cni0", Kind: state.Veth, Up: state.On(), Peer: &state.Peer{Space: state.Host, Name: "left"}},
	}
	veths.Host.Addrs = []state.Addr{{Link: "left", Prefix: prefix("10.1.255.1/32"), Peer: prefix("10.1.255.2/32")}}
	veths.Host.Routes = []state.Route{{Dst: prefix("10.1.0.1/32"), Link: "cni0"}}
	out["pair in one place"] = veths

	shaped := ptp(1)
	shaped.Host.Qdiscs = []state.Qdisc{{Link: "veth0001", Kind: state.TBF, Rate: 125_000, Burst: 20_000, Limit: 23_125}}
	shaped.Pod.Qdiscs = []state.Qdisc{{Link: "eth0", Kind: state.TBF, Rate: 1 << 33, Burst: 1<<32 - 2, Limit: 1<<32 - 1}}
	out["shaped"] = shaped

	other := ptp(1)
	other.Pod.Links = append(other.Pod.Links, state.Link{Name: "ifb-eth0", Kind: state.Ifb, Up: state.On(), MTU: 1500})
	other.Pod.Qdiscs = []state.Qdisc{
		{Link: "eth0", Kind: state.TBF, Rate: 100, Burst: 1<<32 - 2, Limit: 100_000},
		{Link: "eth0", Kind: state.Ingress, Redirect: "ifb-eth0"},
		{Link: "ifb-eth0", Kind: state.TBF, Rate: 1 << 20, Burst: 20_000, Limit: 100_000},
	}
	out["shaped without the host's end"] = other

	masq := ptp(3)
	masq.Host.Tables = []state.Table{{
		Family: "inet", Name: "weft", Shared: true,
		Sets: []state.Set{
			{
				Name: "masq4", Key: "ipv4_addr", Elements: []state.Element{{Key: []string{"10.1.0.3"}, Comment: "weft:net/3/eth0"}},
			},
		},
		Chains: []state.Chain{{
			Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept",
			Rules: []state.NftRule{{Text: "ip saddr @masq4 masquerade"}},
		}},
	}}
	out["masquerade"] = masq
	return out
}

func ptr[T any](v T) *T { return &v }

// gone returns the objects in old that are not in next: the fragment to be removed between the two.
func gone(old, next state.Fragment) state.Fragment {
	out := state.Fragment{Owner: old.Owner}
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		o, n, to := old.Space(name), next.Space(name), out.Space(name)
		to.Links = except(o.Links, n.Links, func(l state.Link) string {
			return fmt.Sprint(l.Name, l.Kind, l.Alias, l.Master, l.Peer, l.MAC, l.Promisc != nil, l.AllMulti != nil,
				l.Port != nil, l.Bridge != nil)
		})
		to.Addrs = except(o.Addrs, n.Addrs, state.Addr.String)
		to.Routes = except(o.Routes, n.Routes, state.Route.String)
		to.Rules = except(o.Rules, n.Rules, state.Rule.String)
		to.Neighs = except(o.Neighs, n.Neighs, state.Neigh.String)
		to.Qdiscs = except(o.Qdiscs, n.Qdiscs, func(q state.Qdisc) string { return fmt.Sprint(q.Link, q.Kind) })
		to.Tables = except(o.Tables, n.Tables, func(t state.Table) string { return t.Name })
	}
	return out
}

// differsFor returns the difference that remains after d: the kernel adds an IPv6 address's own route a little later.
func differsFor(d time.Duration, diff func() string) string {
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
		if out := diff(); out == "" || time.Now().After(end) {
			return out
		}
	}
}

func except[T any](old, next []T, key func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(old), func(o T) bool {
		return slices.ContainsFunc(next, func(n T) bool { return key(n) == key(o) })
	})
}

// TestAnyStateToAnyState walks through the canned states at random. Whatever the path, the kernel has the objects of
// the state, a second Apply writes nothing, and both namespaces are exactly as on the first visit.
func TestAnyStateToAnyState(t *testing.T) {
	s := pair(t)
	for _, c := range []*Conn{s.Host, s.Pod} { // bringing lo up is never undone
		nettest.Run(t, c.ns, "ip", "link", "set", "lo", "up")
	}
	states := canned()
	names := slices.Sorted(maps.Keys(states))
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d, %d states", seed, len(names))
	whole := map[string]string{}
	at := "nothing"
	for step := range 200 {
		next := names[random.IntN(len(names))]
		label := fmt.Sprintf("step %d, from %q to %q", step, at, next)
		if err := s.Remove(t.Context(), gone(states[at], states[next])); err != nil {
			t.Fatalf("%s: remove: %v", label, err)
		}
		if err := s.RemoveShared(t.Context(), gone(states[at], states[next])); err != nil {
			t.Fatalf("%s: remove shared: %v", label, err)
		}
		if err := s.Apply(t.Context(), states[next]); err != nil {
			t.Fatalf("%s: apply: %v", label, err)
		}
		wantRead(t, s, states[next], label)
		before := s.Host.Writes() + s.Pod.Writes()
		if err := s.Apply(t.Context(), states[next]); err != nil {
			t.Fatalf("%s: second apply: %v", label, err)
		}
		if n := s.Host.Writes() + s.Pod.Writes() - before; n != 0 {
			t.Fatalf("%s: second apply wrote %d requests", label, n)
		}
		at = next
		if first, seen := whole[next]; seen && step%4 != 0 {
			continue // ip's long output takes most of the time
		} else if !seen {
			for was := ""; was == "" || whole[next] != was; { // until the kernel has finished its own changes
				time.Sleep(100 * time.Millisecond)
				was, whole[next] = whole[next], everything(t, s)
			}
		} else if diff := differsFor(time.Minute, func() string { return cmp.Diff(first, everything(t, s)) }); diff != "" {
			t.Fatalf("%s: the namespaces are not what they were the first time (-first +now):\n%s", label, diff)
		}
	}
}

// wantRead compares what Read returns for both namespaces with the fragment.
func wantRead(t *testing.T, s Spaces, f state.Fragment, label string) {
	t.Helper()
	wantSame(t, s, f)
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		want := *f.Space(name)
		have, err := s.conn(name).Read(t.Context(), want)
		if err != nil {
			t.Fatalf("%s: read %s: %v", label, name, err)
		}
		if a, b := text(t, want), text(t, have); a != b {
			t.Fatalf("%s: %s (-want +have):\n%s", label, name, cmp.Diff(a, b))
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// everything returns the output of ip, which is independent of this package, for both namespaces, without randomly
// chosen values.
func everything(t *testing.T, s Spaces) string {
	t.Helper()
	out := ""
	for _, c := range []*Conn{s.Host, s.Pod} {
		for _, argv := range [][]string{
			{"ip", "-br", "addr"},
			{"ip", "route", "show", "table", "all"},
			{"ip", "-6", "route", "show", "table", "all"},
			{"ip", "rule"},
			{"ip", "-6", "rule"},
			{"ip", "neigh", "show", "nud", "permanent"},
			{"ip", "neigh", "show", "proxy"},
			{"ip", "-6", "neigh", "show", "proxy"},
			{"nft", "list", "ruleset"},
		} {
			out += fmt.Sprintln(argv) + scrub(nettest.Run(t, c.ns, argv...))
		}
	}
	return out
}
