// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

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
			var asked, without atomic.Int64
			stop, done := make(chan struct{}), make(chan error)
			go func() {
				done <- s.PodNS.Do(func() error {
					for {
						select {
						case <-stop:
							return nil
						default:
						}
						c, err := net.Dial("udp", family.in) // looks the route up, and sends nothing
						if asked.Add(1); err != nil {
							without.Add(1)
						} else {
							_ = c.Close()
						}
					}
				})
			}()
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
			for seen := asked.Load(); asked.Load() < seen+10; {
			}
			close(stop)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if n := without.Load(); n > 0 {
				t.Errorf("%d of %d lookups found no route", n, asked.Load())
			}
			if err := s.Remove(t.Context(), route(last)); err != nil {
				t.Fatal(err)
			}
			for _, v := range []string{"-4", "-6"} {
				if out := nettest.Run(t, s.PodNS, "ip", v, "route", "show", "proto", "119"); out != "" {
					t.Errorf("left: %s", out)
				}
			}
		})
	}
}
