// SPDX-License-Identifier: Apache-2.0

package reader_test

import (
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// fresh returns a new namespace with a reader of it.
func fresh(t *testing.T) (*netns.NS, *reader.Reader) {
	t.Helper()
	ns := nettest.NS(t, "n")
	sock, err := rtnl.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sock.Close() })
	return ns, reader.New(sock)
}

// TestLinks: a link is found by each of its names if requested, and otherwise by its own name only.
func TestLinks(t *testing.T) {
	ns, r := fresh(t)
	nettest.Run(t, ns, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, ns, "ip", "link", "add", "p0", "master", "br0", "type", "veth", "peer", "name", "p1")
	nettest.Run(t, ns, "ip", "link", "property", "add", "dev", "p0", "altname", "another-name-of-p0")
	found, err := r.LinksByName(t.Context(), []string{"br0", "p0", "nolink"})
	if err != nil || len(found) != 2 {
		t.Fatalf("%v %v", found, err)
	}
	if other, err := r.LinksByName(t.Context(), []string{"another-name-of-p0"}); err != nil || len(other) != 0 {
		t.Errorf("by another name: %v %v", other, err)
	}
	port, ok, err := r.LinkByAnyName(t.Context(), "another-name-of-p0")
	if err != nil || !ok || port.Index != found["p0"].Index || port.MasterIndex != found["br0"].Index {
		t.Errorf("%+v %t %v", port, ok, err)
	}
	enslaved, err := r.Links(t.Context(), found["br0"].Index)
	if _, is := enslaved[port.Index]; err != nil || len(enslaved) != 1 || !is {
		t.Errorf("ports of br0: %v %v", enslaved, err)
	}
	all, err := r.Links(t.Context(), 0) // some kernels also have fallback tunnels in each namespace
	for _, index := range []int{1, found["br0"].Index, port.Index} {
		if _, is := all[index]; err != nil || !is {
			t.Errorf("link %d is not among %v, %v", index, all, err)
		}
	}
	if gone, ok, err := r.LinkByIndex(t.Context(), 4711); err != nil || ok {
		t.Errorf("%+v %v", gone, err)
	}
}

// TestFewAndAll: single entries equal those of the whole table, and learned entries are not permanent.
func TestFewAndAll(t *testing.T) {
	nettest.Need(t, "vxlan")
	ns, r := fresh(t)
	nettest.Run(t, ns, "ip", "link", "add", "vx0", "up", "type", "vxlan", "id", "7", "dstport", "4789",
		"local", "127.0.0.1")
	const mac = "02:00:00:00:00:07"
	nettest.Run(t, ns, "ip", "neigh", "add", "10.0.0.7", "lladdr", mac, "dev", "vx0", "nud", "permanent")
	nettest.Run(t, ns, "ip", "neigh", "add", "10.0.0.8", "lladdr", mac, "dev", "vx0", "nud", "stale")
	nettest.Run(t, ns, "bridge", "fdb", "add", mac, "dev", "vx0", "dst", "192.0.2.7")
	links, err := r.LinksByName(t.Context(), []string{"vx0"})
	if err != nil {
		t.Fatal(err)
	}
	vx := links["vx0"]
	ip := netip.MustParseAddr("10.0.0.7")
	asked, err := r.FewNeighs(t.Context(), []state.Neigh{{IP: ip}, {IP: netip.MustParseAddr("10.0.0.9")}}, vx.Index)
	if err != nil || len(asked) != 1 || asked[0].IP != ip || !asked[0].Permanent {
		t.Errorf("asked: %+v %v", asked, err)
	}
	permanent, err := r.PermanentNeighs(t.Context(), vx)
	if err != nil || len(permanent) != 1 || permanent[0].IP != ip || permanent[0].Link != "vx0" {
		t.Errorf("permanent: %+v %v", permanent, err)
	}
	all, err := r.FDBs(t.Context(), vx.Index)
	if err != nil {
		t.Fatal(err)
	}
	entry := state.FDB{MAC: asked[0].MAC}
	few, sure, err := r.FewFDBs(t.Context(), []state.FDB{entry}, vx.Index)
	if err != nil || sure && (len(few) != 1 || !slices.Contains(all, few[0])) {
		t.Errorf("entries: asked %+v, all %+v, %v", few, all, err)
	}
}

// TestRoutes: routes are filtered by link, table and protocol.
func TestRoutes(t *testing.T) {
	ns, r := fresh(t)
	nettest.Run(t, ns, "ip", "link", "add", "p0", "up", "type", "veth", "peer", "name", "p1")
	nettest.Run(t, ns, "ip", "link", "set", "p1", "up")
	nettest.Run(t, ns, "ip", "addr", "add", "10.0.0.1/24", "dev", "p0")
	nettest.Run(t, ns, "ip", "route", "add", "10.1.0.0/16", "dev", "p0", "proto", "static")
	nettest.Run(t, ns, "ip", "route", "add", "10.2.0.0/16", "dev", "p1", "table", "100", "proto", "static")
	links, err := r.LinksByName(t.Context(), []string{"p0", "p1"})
	if err != nil {
		t.Fatal(err)
	}
	count := func(index int, table uint32) int {
		routes, err := r.Routes(t.Context(), unix.AF_INET, index, table)
		if err != nil {
			t.Fatal(err)
		}
		return len(routes)
	}
	if own, other := count(links["p0"].Index, unix.RT_TABLE_MAIN),
		count(links["p1"].Index, unix.RT_TABLE_MAIN); own != 2 || other != 0 {
		t.Errorf("main table: %d routes over p0, %d over p1", own, other)
	}
	if n := count(0, 100); n != 1 {
		t.Errorf("table 100 has %d routes", n)
	}
	if static, err := r.RoutesOf(t.Context(), unix.AF_INET, unix.RTPROT_STATIC); err != nil || len(static) != 1 ||
		static[0].Dst.String() != "10.1.0.0/16" {
		t.Errorf("static routes of the main table: %v %v", static, err)
	}
	if to, err := r.LinkTo(t.Context(), netip.MustParseAddr("10.1.2.3")); err != nil || to != links["p0"].Index {
		t.Errorf("to 10.1.2.3 over link %d, %v", to, err)
	}
	if to, err := r.LinkTo(t.Context(), netip.MustParseAddr("10.9.9.9")); err != nil || to != 0 {
		t.Errorf("there is no way to 10.9.9.9, told link %d, %v", to, err)
	}
}
