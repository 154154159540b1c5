// SPDX-License-Identifier: Apache-2.0

package flow_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// An address has the name that it had at the time of the flow, and keeps the last one after its holder is gone.
func TestDirectory(t *testing.T) {
	addr := netip.MustParseAddr("10.42.1.2")
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	pod := func(name string) *flow.Identity { return &flow.Identity{Kind: flow.PodEnd, Name: name, Node: "node1"} }
	d := flow.NewDirectory()
	for _, h := range []flow.Holder{
		{Time: at(10), Addr: addr, Identity: pod("shop/a")},
		{Time: at(10), Addr: addr, Network: "shop/fast", Identity: pod("shop/fast")},
		{Time: at(20), Addr: addr},
		{Time: at(30), Addr: addr, Identity: pod("shop/b")},
		{Time: at(25), Addr: addr}, // an older report of another node
	} {
		d.AddHolder(h)
	}
	d.AddNode("node1", netip.MustParseAddr("172.18.0.1"))
	d.AddService("shop/web", netip.MustParseAddr("10.96.0.7"))
	for _, c := range []struct {
		network, addr string
		at            int
		want          string
	}{
		{"", "10.42.1.2", 5, "shop/a"}, // flows that were tracked before
		{"", "10.42.1.2", 15, "shop/a"},
		{"", "10.42.1.2", 25, "shop/a"},
		{"", "10.42.1.2", 35, "shop/b"},
		{"shop/fast", "10.42.1.2", 35, "shop/fast"},
		{"shop/other", "10.42.1.2", 35, "shop/b"},
		{"", "172.18.0.1", 1, "node1"},
		{"", "10.96.0.7", 1, "shop/web"},
		{"", "192.0.2.1", 1, ""},
	} {
		if id, _ := d.Lookup(c.network, netip.MustParseAddr(c.addr), at(c.at)); id.Name != c.want {
			t.Errorf("%s of network %q at %d: %q, want %q", c.addr, c.network, c.at, id.Name, c.want)
		}
	}
	r := flow.Record{Time: at(15)}
	r.From = flow.Endpoint{Addr: addr, Identity: flow.Identity{Kind: flow.OutsideEnd}}
	r.To = flow.Endpoint{Addr: netip.MustParseAddr("172.18.0.1"), Identity: flow.Identity{Kind: flow.PodEnd, Name: "shop/own"}}
	d.Complete(&r)
	if r.From.Name != "shop/a" || r.To.Name != "shop/own" { // a node knows its own best
		t.Errorf("%+v", r)
	}
	r = flow.Record{Time: at(15), Node: "node2"}
	r.From = flow.Endpoint{Addr: addr, Identity: flow.Identity{Kind: flow.PodEnd, Name: "shop/stale", Node: "node1"}}
	if d.Complete(&r); r.From.Name != "shop/a" { // and others' by hearsay
		t.Errorf("%+v", r)
	}
	holders := map[string]bool{}
	for h := range d.Holders() {
		holders[h.Identity.Name] = true
	}
	if len(holders) != 2 || !holders["shop/b"] || !holders["shop/fast"] {
		t.Errorf("holders now: %v", holders)
	}
}

// The text of a flow has its ends, what they were translated to, what decided, and what passed.
func TestText(t *testing.T) {
	r := sample()
	r.Time = time.Date(2026, 1, 2, 3, 4, 5, 6000000, time.Local)
	r.Reason = ""
	masquerade := netip.MustParseAddrPort("172.18.0.1:9")
	r.Masquerade = &masquerade
	want := "03:04:05.006 node1 shop/web-0 10.42.1.2:40000 > vm vms/db 10.8.0.9:15432 (vms/fast) " +
		"via service shop/db 10.96.0.7:5432 as 172.18.0.1:9 tcp new allowed: egress NetworkPolicy shop/out rule 1"
	if got := r.Compact(false); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	r.Kind, r.Verdict, r.Via, r.Masquerade = flow.Denied, flow.DeniedVerdict, nil, nil
	r.Decisions = []flow.Decision{{Direction: "egress", Allowed: true}, {Direction: "ingress", Rule: -1}}
	r.Forth, r.Back = &flow.Counters{Packets: 1, Bytes: 60}, &flow.Counters{}
	want = "03:04:05.006 node1 10.42.1.2:40000 > 10.8.0.9:15432 tcp denied: ingress no policy (packets/bytes 1/60, back 0/0)"
	if got := r.Compact(true); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	lost := flow.Lost{Time: r.Time, Node: "node1", New: 2, Queue: 3}
	want = "03:04:05.006 node1 lost: 2 new connections that the kernel could not report, 3 flows that were not read in time"
	if got := lost.Text(); got != want || lost.Sum() != 5 {
		t.Errorf("%s, %d", got, lost.Sum())
	}
}

// A new connection to an address that has no holder any more has no name; those from before keep it.
func TestGoneHolder(t *testing.T) {
	d := flow.NewDirectory()
	begin, addr := time.Unix(1000, 0), netip.MustParseAddr("10.42.2.9")
	d.AddHolder(flow.Holder{Time: begin, Addr: addr, Identity: &flow.Identity{Kind: flow.PodEnd, Name: "shop/db", Node: "node2"}})
	d.AddHolder(flow.Holder{Time: begin.Add(time.Minute), Addr: addr})
	for _, c := range []struct {
		kind  flow.Kind
		after time.Duration
		want  string
	}{
		{flow.New, 30 * time.Second, "shop/db"}, {flow.New, 61 * time.Second, "shop/db"}, {flow.New, 2 * time.Minute, ""},
		{flow.Denied, 2 * time.Minute, ""}, {flow.End, 2 * time.Minute, "shop/db"}, {flow.Tracked, 2 * time.Minute, "shop/db"},
	} {
		r := flow.Record{Time: begin.Add(c.after), Kind: c.kind, Node: "node1", To: flow.Endpoint{Addr: addr, Identity: flow.Identity{Kind: flow.OutsideEnd}}}
		if d.Complete(&r); r.To.Name != c.want {
			t.Errorf("%s after %s: %q, want %q", c.kind, c.after, r.To.Name, c.want)
		}
	}
}

// An address that nothing is known to have is named by the smallest range of a pool that has it, on the cluster's network.
func TestPools(t *testing.T) {
	d := flow.NewDirectory()
	d.AddPool("wide", netip.MustParsePrefix("10.42.0.0/16"))
	d.AddPool("special", netip.MustParsePrefix("10.42.7.0/24"))
	d.AddNode("node1", netip.MustParseAddr("10.42.7.1"))
	for _, c := range []struct{ addr, network, want string }{
		{"10.42.7.9", "", "pool special 10.42.7.9"}, {"10.42.8.9", "", "pool wide 10.42.8.9"}, {"10.43.0.1", "", "outside 10.43.0.1"},
		{"10.42.7.1", "", "node node1 10.42.7.1"}, {"10.42.7.9", "shop/storage", "outside 10.42.7.9"},
	} {
		r := flow.Record{
			From: flow.Endpoint{Addr: netip.MustParseAddr("10.42.1.1"), Identity: flow.Identity{Kind: flow.PodEnd, Name: "shop/web", Network: c.network}},
			To:   flow.Endpoint{Addr: netip.MustParseAddr(c.addr), Identity: flow.Identity{Kind: flow.OutsideEnd}},
		}
		d.Complete(&r)
		if got := r.To.Text(false); got != c.want {
			t.Errorf("%s on %q: %s, want %s", c.addr, c.network, got, c.want)
		}
	}
}
