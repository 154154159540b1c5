// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// pairOfNodes returns two namespaces a and b that are joined by a veth pair.
func pairOfNodes(t *testing.T) (a, b Endpoint) {
	nsA, nsB := nettest.NS(t, "a"), nettest.NS(t, "b")
	nettest.Run(t, nsA, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", nsB.Path())
	set := func(ns *netns.NS, addrs ...string) {
		nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
		for _, a := range addrs {
			nettest.Run(t, ns, "ip", "addr", "add", a, "dev", "eth0", "nodad")
		}
		nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	}
	set(nsA, "10.0.0.1/24", "fd00::1/64")
	set(nsB, "10.0.0.2/24", "fd00::2/64")
	// Learned neighbors would be lost if another program on the host fills the kernel's table.
	mac := func(ns *netns.NS) string {
		return strings.Fields(nettest.Run(t, ns, "ip", "-br", "link", "show", "eth0"))[2]
	}
	for _, n := range []struct {
		ns, other *netns.NS
		addrs     string
	}{{nsA, nsB, "10.0.0.2 10.0.0.3 fd00::2"}, {nsB, nsA, "10.0.0.1 fd00::1"}} {
		for _, a := range strings.Fields(n.addrs) {
			nettest.Run(t, n.ns, "ip", "neigh", "replace", a, "lladdr", mac(n.other), "dev", "eth0", "nud", "permanent")
		}
	}
	// The kernel forwards packets after it has detected the carrier, which can take a second.
	for _, ns := range []*netns.NS{nsA, nsB} {
		for i := 0; !strings.Contains(nettest.Run(t, ns, "ip", "-br", "link", "show", "eth0"), " UP "); i++ {
			if i > 3000 {
				t.Fatal("no carrier within a minute")
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	a = Endpoint{Name: "a", NS: nsA, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}
	b = Endpoint{
		Name: "default/b", NS: nsB, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")},
	}
	return a, b
}

func run(t *testing.T, c Config) Report {
	t.Helper()
	c.Timeout = 4 * time.Second // a busy host may lose the first packet, and TCP retransmits it after a second
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAllReachable(t *testing.T) {
	a, b := pairOfNodes(t)
	twin := b // a hostNetwork pod has its node's namespace and addresses
	twin.Name = "default/twin"
	got := run(t, Config{Endpoints: []Endpoint{a, b, twin}})
	want := Report{
		Pairs: 36, Reached: 36, Failed: []Failure{}, Names: []string{"a", "default/b", "default/twin"},
		Cells: [][]Cell{{{}, {6, 6, 0, 0}, {6, 6, 0, 0}}, {{6, 6, 0, 0}, {}, {6, 6, 0, 0}}, {{6, 6, 0, 0}, {6, 6, 0, 0}, {}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !got.OK() {
		t.Error("not OK")
	}
}

func TestFailures(t *testing.T) {
	a, b := pairOfNodes(t)
	nettest.Run(t, b.NS, "nft", `table inet t {
	chain in {
		type filter hook input priority 0
		icmpv6 type echo-request drop
		ip protocol udp drop
		meta l4proto tcp ip6 daddr fd00::2 tcp flags & (syn | ack) == syn reject with tcp reset
	}
	}
	`)
	got := run(t, Config{Endpoints: []Endpoint{a, b}, Expect: func(_ context.Context, flows []Flow) ([]bool, error) {
		var out []bool
		for _, f := range flows {
			out = append(out, f.Proto != ICMP6)
		}
		return out, nil
	}})
	want := []Failure{
		{From: "a", To: "default/b", Proto: ICMP6, Error: "to fd00::2: no reply"},
		{From: "a", To: "default/b", Proto: TCP6, Error: "to fd00::2: connection refused", Expected: true},
		{From: "a", To: "default/b", Proto: UDP4, Error: "to 10.0.0.2: no reply", Expected: true},
		// a replies to b, but b's filter drops UDP replies, too.
		{From: "default/b", To: "a", Proto: UDP4, Error: "to 10.0.0.1: no reply", Expected: true},
	}
	if d := cmp.Diff(want, got.Failed); d != "" {
		t.Error(d)
	}
	if got.OK() || got.Pairs != 12 || got.Reached != 8 || len(got.Leaked) != 1 || got.Denied != 1 {
		t.Errorf("OK %v, pairs %d, reached %d, denied %d, leaked %v; want false, 12, 8, 1 and b to a by icmp6",
			got.OK(), got.Pairs, got.Reached, got.Denied, got.Leaked)
	}
}

func TestReplyFromAnotherEndpoint(t *testing.T) {
	a, b := pairOfNodes(t)
	c := b
	c.Name, c.Addrs = "default/c", []netip.Addr{netip.MustParseAddr("10.0.0.3")}
	nettest.Run(t, b.NS, "ip", "addr", "add", "10.0.0.3/24", "dev", "eth0")
	l, err := listenAll([]Endpoint{b}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	at := l[listenKey{"default/b", netip.MustParseAddr("10.0.0.2"), TCP4}].addr
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := probeTCP(ctx, a.NS, at, c.Name); err == nil || err.Error() != "reply from default/b" {
		t.Errorf("got %v, want a reply from default/b", err)
	}
}

func TestEndpointsWithProblems(t *testing.T) {
	a, b := pairOfNodes(t)
	b.NS, b.Addrs, b.Problem = nil, nil, "pod is Pending"
	got := run(t, Config{Endpoints: []Endpoint{a, b}})
	if got.Pairs != 12 || got.Reached != 0 || len(got.Failed) != 12 || got.Failed[0].Error != "pod is Pending" {
		t.Errorf("got %+v, want 12 pairs that fail because the pod is Pending", got)
	}
	b.Addrs, b.Problem = []netip.Addr{netip.MustParseAddr("10.0.0.2")}, ""
	b.NS = nettest.NS(t, "c")
	got = run(t, Config{Endpoints: []Endpoint{a, b}})
	if got.Pairs != 6 || got.OK() {
		t.Errorf("got %+v, want 6 pairs of one family, none reached", got)
	}
}

func TestOneFamily(t *testing.T) {
	a, b := pairOfNodes(t)
	b.Addrs = b.Addrs[:1]
	got := run(t, Config{Endpoints: []Endpoint{a, b}})
	if got.Pairs != 6 || got.Reached != 6 {
		t.Errorf("got %+v, want 6 of 6", got)
	}
}
