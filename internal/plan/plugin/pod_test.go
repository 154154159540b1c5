// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestForeignRoutes: metrics and tables in the result of a foreign IPAM plugin are validated.
func TestForeignRoutes(t *testing.T) {
	number := func(n int) *int { return &n }
	const hint = "(have the ipam plugin leave it out for the kernel's default)"
	dst := netip.MustParsePrefix("10.9.0.0/16")
	for want, route := range map[string]model.Route{
		"": {
			Dst: dst, MTU: 65535, AdvMSS: 65535, Priority: 1<<32 - 1, Table: number(1<<32 - 1), Scope: number(255),
		},
		"plugin ptp: ipam: routes[0].priority -1 is not between 0 and 4294967295 " + hint:         {Dst: dst, Priority: -1},
		"plugin ptp: ipam: routes[0].priority 4294967296 is not between 0 and 4294967295 " + hint: {Dst: dst, Priority: 1 << 32},
		"plugin ptp: ipam: routes[0].table -2 is not between 0 and 4294967295 " + hint:            {Dst: dst, Table: number(-2)},
		"plugin ptp: ipam: routes[0].scope 256 is not between 0 and 255 " + hint:                  {Dst: dst, Scope: number(256)},
		"plugin ptp: ipam: routes[0].mtu -1 is not between 0 and 65535 " + hint:                   {Dst: dst, MTU: -1},
		"plugin ptp: ipam: routes[0].advmss 65536 is not between 0 and 65535 " + hint:             {Dst: dst, AdvMSS: 65536},
	} {
		got := ""
		_, err := fromIPAM(model.PluginConf{Type: "ptp"}, &model.Result{
			IPs: []model.IP{{Address: netip.MustParsePrefix("10.1.0.2/24")}}, Routes: []model.Route{route},
		})
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
