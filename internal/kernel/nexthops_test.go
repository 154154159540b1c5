// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// Next hops over several links come and go, of either family, also gateways of IPv6 for IPv4; at no moment there is no
// route.
func TestNextHops(t *testing.T) {
	const a, b, c = "net1 1", "net1 2", "net2 1"
	for _, family := range []struct{ name, dst, in, gateways string }{
		{"IPv4", "198.51.100.0/24", "198.51.100.1:9", "10.5.%"},
		{"IPv6", "2001:db8:7::/48", "[2001:db8:7::1]:9", "fd05:%::"},
		{"IPv4 over IPv6", "198.51.100.0/24", "198.51.100.1:9", "fe80::%:"},
	} {
		t.Run(family.name, func(t *testing.T) {
			s := pair(t)
			for i, link := range []string{"net1", "net2"} {
				n := string(rune('1' + i))
				nettest.Run(t, s.PodNS, "ip", "link", "add", link, "type", "veth", "peer", "name", "wire"+n)
				nettest.Run(t, s.PodNS, "ip", "link", "set", "wire"+n, "up")
				nettest.Run(t, s.PodNS, "ip", "link", "set", link, "up")
				nettest.Run(t, s.PodNS, "ip", "addr", "add", "10.5."+n+".9/24", "dev", link)
				nettest.Run(t, s.PodNS, "ip", "addr", "add", "fd05:"+n+"::9/64", "dev", link, "nodad")
			}
			route := func(hops []string) state.Fragment {
				r := state.Route{Dst: netip.MustParsePrefix(family.dst), Metric: 77, Protocol: 119}
				for i, h := range hops {
					link, host, _ := strings.Cut(h, " ")
					gateway := strings.Replace(family.gateways, "%", link[3:], 1)
					if strings.HasSuffix(gateway, ":") {
						gateway += host
					} else {
						gateway += "." + host
					}
					switch gw := addr(gateway); {
					case i == 0:
						r.Gw, r.Link = gw, link
					case link == r.Link:
						r.NextHops = append(r.NextHops, state.NextHop{Gw: gw})
					default:
						r.NextHops = append(r.NextHops, state.NextHop{Gw: gw, Link: link})
					}
				}
				f := state.Fragment{Owner: "routes"}
				f.Pod.Routes = []state.Route{r}
				return f
			}
			mustApply(t, s, route([]string{a}))
			var gone atomic.Int64
			dst := netip.MustParsePrefix(family.dst)
			if _, err := watch.Events(t.Context(), s.PodNS, func(e watch.Event) bool {
				if e.Kind == watch.Lost || e.Kind == watch.Route && e.Gone && e.Dst == dst {
					gone.Add(1)
				}
				return false
			}); err != nil {
				t.Fatal(err)
			}
			asked, stop := lookups(t, s.PodNS, family.in)
			last := []string{a}
			for _, hops := range [][]string{{a, b}, {b}, {b, c}, {a, b, c}, {a, c}, {c}, {a, b}, {a, b, c}, {a}} {
				f := route(hops)
				mustApply(t, s, f)
				if family.name == "IPv6" { // whose next hops over other links are routes of their own, as those of other owners
					gone := state.Fragment{Owner: "gone"}
					for i, h := range last {
						if one := route(last).Pod.Routes[0]; !slices.Contains(hops, h) {
							gone.Pod.Routes = append(gone.Pod.Routes, one.Over(one.Hops()[i]))
						}
					}
					if err := s.Remove(t.Context(), gone); err != nil {
						t.Fatal(err)
					}
				}
				wantSame(t, s, f)
				out := nettest.Run(t, s.PodNS, "ip", map[bool]string{true: "-6", false: "-4"}[family.name == "IPv6"], "route", "show",
					family.dst)
				got := strings.Count(out, "via ")
				for _, h := range f.Pod.Routes[0].Hops() {
					if !strings.Contains(out, h.Gw.String()+" dev "+h.Link) {
						t.Errorf("%v: no %s: %s", hops, h, out)
					}
				}
				if got != len(hops) || strings.Count(out, "proto") > 1 && family.name != "IPv6" {
					t.Errorf("%v: %s", hops, out)
				}
				last = hops
			}
			if without := stop(); family.name == "IPv6" && without > 0 {
				t.Errorf("%d of %d lookups found no route", without, asked.Load())
			}
			if err := s.Remove(t.Context(), route(last)); err != nil {
				t.Fatal(err)
			}
			for gone.Load() == 0 { // at the latest now
				time.Sleep(time.Millisecond)
			}
			// Of IPv6, each next hop over another link is a route. Of IPv4, a lookup may find none for a moment while the kernel
			// replaces a route: it passes over the old one once that is released.
			if n := gone.Load(); n != 1 && family.name != "IPv6" {
				t.Errorf("the route was deleted %d times", n)
			}
			for _, v := range []string{"-4", "-6"} {
				if out := nettest.Run(t, s.PodNS, "ip", v, "route", "show", "proto", "119"); out != "" {
					t.Errorf("left: %s", out)
				}
			}
		})
	}
}

// lookups looks a route up until stop, which returns how many lookups found none.
func lookups(t *testing.T, ns *netns.NS, to string) (asked *atomic.Int64, stop func() (without int)) {
	t.Helper()
	asked = &atomic.Int64{}
	ended, done, without := make(chan struct{}), make(chan error), 0
	go func() {
		done <- ns.Do(func() error {
			for {
				select {
				case <-ended:
					return nil
				default:
				}
				c, err := net.Dial("udp", to) // looks the route up, and sends nothing
				if asked.Add(1); err != nil {
					without++
				} else {
					_ = c.Close()
				}
			}
		})
	}()
	return asked, func() int {
		for seen := asked.Load(); asked.Load() < seen+10; {
			time.Sleep(time.Millisecond)
		}
		close(ended)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return without
	}
}
