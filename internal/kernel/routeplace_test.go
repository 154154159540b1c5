// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// An absent route is replaced by a wanted one, whichever program added it, and stays if it is the wanted one.
func TestRouteInThePlaceOfAnother(t *testing.T) {
	for _, family := range []struct{ all, addr, a, b, c string }{
		{"0.0.0.0/0", "10.5.0.5/24", "10.5.0.1", "10.5.0.2", "10.5.0.3"},
		{"::/0", "fd05::5/64", "fd05::1", "fd05::2", "fd05::3"},
	} {
		for _, tc := range []struct {
			name string
			have []string // foreign
			want []string
		}{
			{"the same", []string{family.a}, []string{family.a}},
			{"another gateway", []string{family.a}, []string{family.b}},
			{"two for one", []string{family.a}, []string{family.b, family.c}},
			{"one more", []string{family.a}, []string{family.a, family.b}},
			{"two, one of them", []string{family.a, family.b}, []string{family.b}},
			{"two others", []string{family.a, family.b}, []string{family.c}},
		} {
			t.Run(family.all+" "+tc.name, func(t *testing.T) {
				s := pair(t)
				ns := s.PodNS
				nettest.Run(t, ns, "ip", "link", "add", "net1", "type", "veth", "peer", "name", "wire")
				nettest.Run(t, ns, "ip", "link", "set", "wire", "up")
				nettest.Run(t, ns, "ip", "link", "set", "net1", "up")
				nettest.Run(t, ns, "ip", "addr", "add", family.addr, "dev", "net1", "nodad")
				for _, gw := range tc.have { // as the reference plugins do
					nettest.Run(t, ns, "ip", "route", "append", family.all, "via", gw, "dev", "net1", "proto", "boot")
				}
				f := state.Fragment{Owner: "routes"}
				q := state.Query{Space: state.Pod, Routes: "net1", Main: true}
				a, err := s.Observe(t.Context(), []state.Query{q})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range a[q].Routes {
					if r.Dst.Bits() == 0 {
						r.Absent, r.Table, r.Scope, r.Protocol = true, 0, nil, 0
						f.Pod.Routes = append(f.Pod.Routes, r)
					}
				}
				if len(f.Pod.Routes) == 0 {
					t.Fatal("there is no route to be replaced")
				}
				want := state.Route{Dst: prefix(family.all), Link: "net1", Gw: addr(tc.want[0])}
				for _, gw := range tc.want[1:] {
					want.NextHops = append(want.NextHops, state.NextHop{Gw: netip.MustParseAddr(gw)})
				}
				f.Pod.Routes = append(f.Pod.Routes, want)
				mustApply(t, s, f)
				check := func() {
					t.Helper()
					out := nettest.Run(t, ns, "ip", map[bool]string{true: "-4", false: "-6"}[want.Dst.Addr().Is4()], "route",
						"show", "default")
					if n := strings.Count(out, " via "); n != len(tc.want) {
						t.Errorf("%d gateways: %s", n, out)
					}
					for _, gw := range tc.want {
						if !strings.Contains(out, "via "+gw+" ") {
							t.Errorf("no %s: %s", gw, out)
						}
					}
				}
				check()
				mustApply(t, s, f)
				check()
			})
		}
	}
}
