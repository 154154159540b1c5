// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// peerSpace returns a peer of a mesh over the VXLAN device vx0.
func peerSpace(i int) state.Space {
	b := [2]byte{byte(i >> 8), byte(i)}
	end := netip.AddrFrom4([4]byte{10, b[0], b[1], 0})
	mac := state.MAC{2, 0, 0, 0, b[0], b[1]}
	return state.Space{
		Neighs: []state.Neigh{{Link: "vx0", IP: end, MAC: mac}},
		FDBs:   []state.FDB{{Link: "vx0", MAC: mac, Dst: netip.AddrFrom4([4]byte{192, 168, b[0], b[1]})}},
		Routes: []state.Route{
			{
				Dst: netip.PrefixFrom(end, 24), Gw: end, Link: "vx0", OnLink: true, Metric: 1000 + uint32(i),
				Protocol: kernel.Protocol,
			},
		},
	}
}

func peersFragment(from, to int) state.Fragment {
	f := state.Fragment{Owner: "peers"}
	for i := from; i < to; i++ {
		f.Merge(state.Fragment{Host: peerSpace(i)})
	}
	return f
}

// TestFewAmongMany applies, reads and removes single objects on a node that has hundreds: it must cost no more than on
// an empty one, and must find existing objects.
func TestFewAmongMany(t *testing.T) {
	nettest.Need(t, "vxlan")
	ns := nettest.NS(t, "node")
	conn, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	nettest.Run(t, ns, "ip", "link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", "8472", "nolearning")
	nettest.Run(t, ns, "ip", "addr", "add", "10.0.0.0/32", "dev", "vx0")
	nettest.Run(t, ns, "ip", "link", "set", "vx0", "up", "alias", "mark")
	spaces, ctx := kernel.Spaces{Host: conn}, t.Context()
	cost := func(f func() error) int {
		t.Helper()
		before := conn.Messages()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		return conn.Messages() - before
	}
	one := peersFragment(900, 901)
	baseline := cost(func() error { return spaces.Apply(ctx, one) })
	cost(func() error { return spaces.Remove(ctx, one) })
	many := peersFragment(1, 801)
	cost(func() error { return spaces.Apply(ctx, many) })
	if got := cost(func() error { return spaces.Apply(ctx, one) }); got > baseline {
		t.Errorf("one among 800 takes %d messages, alone %d", got, baseline)
	}
	for name, f := range map[string]state.Fragment{"one": one, "many": many} {
		writes := conn.Writes()
		cost(func() error { return spaces.Apply(ctx, f) })
		if conn.Writes() != writes {
			t.Errorf("%s: a second pass wrote", name)
		}
		read, err := conn.Read(ctx, f.Host)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(f.Host, read, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
			cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
			t.Errorf("%s: not as planned:\n%s", name, d)
		}
	}
	marked, err := conn.ReadMarked(ctx, kernel.Marks{Alias: "mark", Protocols: []uint8{kernel.Protocol}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(len(marked.Links), len(marked.Routes), len(marked.Neighs), len(marked.FDBs)); got !=
		"1 801 801 801" {
		t.Errorf("marked: %s links, routes, neighbors, entries", got)
	}
	if got := cost(func() error { return spaces.Remove(ctx, one) }); got > 12 {
		t.Errorf("to remove one takes %d messages", got)
	}
}

// TestHiddenRoutes looks up single routes that the kernel does not choose: another route of the prefix is better, or a
// part of it has its own route.
func TestHiddenRoutes(t *testing.T) {
	for name, hide := range map[string]string{
		"nothing":    "10.9.0.0/24 via 192.168.7.2 metric 5",
		"a better":   "10.3.132.0/24 via 192.168.7.2 metric 5",
		"a narrower": "10.3.132.0/32 via 192.168.7.2",
		"a wider":    "10.3.0.0/16 via 192.168.7.2",
		"a worse":    "10.3.132.0/24 via 192.168.7.2 metric 50000",
	} {
		t.Run(name, func(t *testing.T) {
			ns := nettest.NS(t, "node")
			conn, err := kernel.Dial(ns)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			nettest.Run(t, ns, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
			for _, c := range []string{
				"link set up0 up", "link set up1 up", "addr add 192.168.7.1/24 dev up0", "route add " + hide,
			} {
				nettest.IP(t, ns, c)
			}
			f := peersFragment(900, 901)
			f.Host.Neighs, f.Host.FDBs = nil, nil
			f.Host.Routes[0].Link, f.Host.Routes[0].Gw = "up0", netip.MustParseAddr("192.168.7.9")
			spaces := kernel.Spaces{Host: conn}
			for range 2 {
				if err := spaces.Apply(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			}
			if writes := conn.Writes(); writes != 1 {
				t.Errorf("wrote %d times", writes)
			}
			if d, err := spaces.Diff(t.Context(), f); err != nil || len(d) > 0 {
				t.Errorf("differs: %v %v", d, err)
			}
		})
	}
}

// TestManyMove moves hundreds of routes from one link to another, where each conflicts with its former self.
func TestManyMove(t *testing.T) {
	ns := nettest.NS(t, "node")
	conn, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for i := range 2 {
		nettest.Run(t, ns, "ip", "link", "add", fmt.Sprint("up", i), "type", "veth", "peer", "name", fmt.Sprint("far", i))
		nettest.IP(t, ns, fmt.Sprintf("link set up%d up", i))
		nettest.IP(t, ns, fmt.Sprintf("link set far%d up", i))
		nettest.IP(t, ns, fmt.Sprintf("addr add 192.168.%d.1/24 dev up%d", i, i))
	}
	spaces := kernel.Spaces{Host: conn}
	for i := range 2 {
		f := peersFragment(1, 400)
		f.Host.Neighs, f.Host.FDBs = nil, nil
		for r := range f.Host.Routes {
			f.Host.Routes[r].Link, f.Host.Routes[r].Gw = fmt.Sprint("up", i), netip.AddrFrom4([4]byte{192, 168, byte(i), 9})
		}
		before := conn.Messages()
		if err := spaces.Apply(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if got := conn.Messages() - before; got > 4000 {
			t.Errorf("%d messages", got)
		}
		if d, err := spaces.Diff(t.Context(), f); err != nil || len(d) > 0 {
			t.Fatalf("differs in %d: %v", len(d), err)
		}
	}
}
