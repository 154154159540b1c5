// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestFind: originators and responders are found in both families, each connection once, with few peers and with
// many; other connections are not; and only selected ones are deleted.
func TestFind(t *testing.T) {
	ns := nettest.NS(t, "finds")
	var k Conntrack
	defer func() { _ = k.Close() }()
	track := func(from, to, answers string) state.ConntrackEntry {
		c := state.Connection{
			Proto: 17, Src: netip.MustParseAddrPort(from), Dst: netip.MustParseAddrPort(to),
			ReplySrc: netip.MustParseAddrPort(answers),
		}
		c.ReplyDst = c.Src
		return state.ConntrackEntry{Connection: c, Timeout: 300, SeenReply: true, Assured: true}
	}
	all := []state.ConntrackEntry{
		track("10.0.0.1:1", "10.0.0.2:53", "10.0.0.2:53"), track("10.0.0.1:1", "10.96.0.1:80", "10.0.0.3:8080"),
		track("10.0.0.4:1", "10.0.0.5:53", "10.0.0.5:53"),
		track("10.0.0.5:1", "10.0.0.1:53", "10.0.0.1:53"),
		track("[fd00::1]:1", "[fd00::2]:53", "[fd00::2]:53"), track("[fd00::3]:1", "[fd00::4]:53", "[fd00::4]:53"),
	}
	if err := k.Insert(ns, all, false); err != nil {
		t.Fatal(err)
	}
	party := func(addr string, begins, answers bool) state.ConntrackPeer {
		return state.ConntrackPeer{Addr: netip.MustParseAddr(addr), Originates: begins, Responds: answers}
	}
	var many []state.ConntrackPeer
	for i := range 100 {
		many = append(many,
			state.ConntrackPeer{Addr: netip.AddrFrom4([4]byte{172, 16, 0, byte(i)}), Originates: true, Responds: true})
	}
	for _, c := range []struct {
		parties []state.ConntrackPeer
		want    []string
	}{
		{nil, nil},
		{[]state.ConntrackPeer{party("10.0.0.9", true, true)}, nil},
		{[]state.ConntrackPeer{party("10.0.0.1", true, false)}, []string{
			"10.0.0.1:1>10.0.0.2:53", "10.0.0.1:1>10.0.0.3:8080",
		}},
		{[]state.ConntrackPeer{party("10.0.0.1", false, true)}, []string{"10.0.0.5:1>10.0.0.1:53"}},
		{
			[]state.ConntrackPeer{
				party("10.0.0.1", true, true), party("10.0.0.2", true, true), party("fd00::2", false, true),
				party("fd00::3", false, true),
			},
			[]string{"10.0.0.1:1>10.0.0.2:53", "10.0.0.1:1>10.0.0.3:8080", "10.0.0.5:1>10.0.0.1:53", "[fd00::1]:1>[fd00::2]:53"},
		},
		{[]state.ConntrackPeer{party("10.0.0.3", false, true), party("10.0.0.3", true, false)}, []string{
			"10.0.0.1:1>10.0.0.3:8080",
		}},
	} {
		for _, peers := range [][]state.ConntrackPeer{c.parties, append(slices.Clone(many), c.parties...)} {
			got := names(t, &k, ns, peers)
			if !slices.Equal(got, c.want) {
				t.Errorf("%d peers, %v: %v, want %v", len(peers), c.parties, got, c.want)
			}
		}
	}
	found, err := k.Find(ns, []state.ConntrackPeer{party("10.0.0.1", true, true), party("fd00::1", true, false)},
		func(c state.Connection) bool { return c.ReplySrc.Port() == 53 })
	if err != nil || len(found) != 3 {
		t.Fatalf("%v %v", found, err)
	}
	for range 2 { // a missing entry is no error
		if err := k.Delete(ns, found); err != nil {
			t.Error(err)
		}
	}
	left, err := k.List(ns, func(state.Connection) bool { return true })
	if err != nil || len(left) != 3 || slices.ContainsFunc(left, func(c state.ConntrackEntry) bool {
		return c.Src.Addr() == found[0].Src.Addr() && c.ReplySrc.Port() == 53
	}) {
		t.Errorf("left %v %v", left, err)
	}
}

func names(t *testing.T, k *Conntrack, ns *netns.NS, peers []state.ConntrackPeer) []string {
	t.Helper()
	found, err := k.Find(ns, peers, func(state.Connection) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range found {
		out = append(out, fmt.Sprintf("%s>%s", c.Src, c.ReplySrc))
	}
	slices.Sort(out)
	return out
}

// TestListOfReadsNoOthers: of thousands of entries the kernel sends those of the addresses only, whose number stays what
// it is. Of IPv6, by which it cannot filter, it sends all entries, and no IPv4 ones for that.
func TestListOfReadsNoOthers(t *testing.T) {
	ns := nettest.NS(t, "lists")
	var k Conntrack
	defer func() { _ = k.Close() }()
	entry := func(from, to netip.Addr, port int) state.ConntrackEntry {
		c := state.Connection{
			Proto: 17, Src: netip.AddrPortFrom(from, uint16(port)), Dst: netip.AddrPortFrom(to, 53),
		}
		c.ReplySrc, c.ReplyDst = c.Dst, c.Src
		return state.ConntrackEntry{Connection: c, Timeout: 300, SeenReply: true, Assured: true}
	}
	vm, peer := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	vm6, peer6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	own := []state.ConntrackEntry{entry(vm, peer, 1), entry(peer, vm, 2), entry(vm, vm, 3)}
	own6 := []state.ConntrackEntry{entry(vm6, peer6, 1), entry(peer6, vm6, 2)}
	others := []state.ConntrackEntry{entry(netip.MustParseAddr("fd00::3"), peer6, 1)}
	for i := range 3000 {
		others = append(others, entry(peer, netip.MustParseAddr("10.0.0.3"), 1000+i))
	}
	if err := k.Insert(ns, slices.Concat(own, own6, others), false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addrs      []netip.Addr
		want, sent int
	}{
		{[]netip.Addr{vm}, len(own), len(own) + 1}, // the one from it to itself twice
		{[]netip.Addr{vm6}, len(own6), len(own6) + 1},
		{[]netip.Addr{vm, vm6}, len(own) + len(own6), len(own) + len(own6) + 2},
		{[]netip.Addr{netip.MustParseAddr("10.0.0.9")}, 0, 0},
		{nil, 0, 0},
	} {
		got, err := k.ListOf(ns, c.addrs)
		if err != nil || len(got) != c.want {
			t.Errorf("%v: %d entries, want %d, error %v", c.addrs, len(got), c.want, err)
		}
		var filters []side
		for _, a := range c.addrs {
			filters = append(filters, side{a, true}, side{a, false})
		}
		sent := 0
		err = k.use(ns, func(t conn) error { return t.find(filters, func([]byte) { sent++ }) })
		if err != nil || sent != c.sent {
			t.Errorf("%v: the kernel sent %d entries, want %d, error %v", c.addrs, sent, c.sent, err)
		}
	}
}
