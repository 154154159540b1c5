// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func TestEvents(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns := nettest.NS(t, "node")
	run := func(c string) { nettest.IP(t, ns, c) }
	run("link add one type veth peer name two")
	var mu sync.Mutex
	var heard []watch.Event
	ctx, cancel := context.WithCancel(t.Context())
	signs, err := watch.Events(ctx, ns, func(s watch.Event) bool {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, s)
		return s.Kind == watch.Route && s.Protocol == 119
	})
	if err != nil {
		t.Fatal(err)
	}
	run("link set one up")
	run("link set two up")
	run("addr add 192.0.2.1/24 dev one")
	select {
	case <-signs:
		t.Error("a token for a sign that was not wanted")
	case <-time.After(50 * time.Millisecond):
	}
	for _, change := range []struct {
		command string
		gone    bool
		dst, gw string
	}{
		{"route add 198.51.100.0/24 via 192.0.2.9 dev one proto 119 metric 77", false, "198.51.100.0/24", "192.0.2.9"},
		{"route del 198.51.100.0/24", true, "198.51.100.0/24", "192.0.2.9"},
		{"-6 route add 2001:db8::/64 dev one proto 119 metric 77", false, "2001:db8::/64", ""},
		{"-6 route del 2001:db8::/64", true, "2001:db8::/64", ""},
	} {
		run(change.command)
		select {
		case <-signs:
		case <-time.After(time.Minute):
			t.Fatalf("no token after ip %s", change.command)
		}
		mu.Lock()
		last := heard[len(heard)-1]
		mu.Unlock()
		want := watch.Event{
			Kind: watch.Route, Gone: change.gone, Link: "one", Protocol: 119, Metric: 77, Table: 254,
			Dst: netip.MustParsePrefix(change.dst),
		}
		if change.gw != "" {
			want.Gw = netip.MustParseAddr(change.gw)
		}
		if last != want {
			t.Errorf("ip %s: heard %+v, want %+v", change.command, last, want)
		}
	}
	cancel()
	for range signs {
	}
	links, addrs := map[string]bool{}, map[string]bool{}
	for _, s := range heard {
		links[s.Link], addrs[s.Addr.String()] = true, true
	}
	if !links["one"] || !links["two"] || !addrs["192.0.2.1"] {
		t.Errorf("heard links %v, addresses %v", links, addrs)
	}
}

// TestEntries receives notifications about neighbors and a device's forwarding entries, and compares their content.
func TestEntries(t *testing.T) {
	nettest.Need(t, "vxlan")
	ns := nettest.NS(t, "node")
	run := func(command ...string) { t.Helper(); nettest.Run(t, ns, command...) }
	run("ip", "link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", "8472")
	run("ip", "link", "set", "vx0", "up")
	heard := make(chan watch.Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	signs, err := watch.Events(ctx, ns, func(s watch.Event) bool {
		if s.Kind == watch.Neigh && s.Permanent && s.Link == "vx0" {
			heard <- s
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		for range signs {
		}
	}()
	mac := [6]byte{2, 0, 0, 0, 0, 9}
	for _, step := range []struct {
		command []string
		want    watch.Event
	}{
		{
			[]string{"ip", "neigh", "add", "10.1.2.0", "lladdr", "02:00:00:00:00:09", "dev", "vx0"},
			watch.Event{Addr: netip.MustParseAddr("10.1.2.0")},
		},
		{
			[]string{"bridge", "fdb", "add", "02:00:00:00:00:09", "dev", "vx0", "dst", "192.0.2.9", "self", "permanent"},
			watch.Event{Addr: netip.MustParseAddr("192.0.2.9"), Bridge: true},
		},
		{
			[]string{"bridge", "fdb", "del", "02:00:00:00:00:09", "dev", "vx0", "dst", "192.0.2.9", "self"},
			watch.Event{Addr: netip.MustParseAddr("192.0.2.9"), Bridge: true, Gone: true},
		},
	} {
		run(step.command...)
		step.want.Kind, step.want.Link, step.want.MAC, step.want.Permanent = watch.Neigh, "vx0", mac, true
		for {
			select {
			case got := <-heard:
				if got != step.want {
					t.Logf("%s: heard %+v", strings.Join(step.command, " "), got)
					continue // the kernel's own, which differ between versions
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: did not hear %+v", strings.Join(step.command, " "), step.want)
			}
			break
		}
	}
}
