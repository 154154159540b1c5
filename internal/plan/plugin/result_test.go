// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-net/weft/internal/model"
)

// A result behind another one keeps what that promised, and its addresses still point at their interfaces.
func TestOnTop(t *testing.T) {
	at := func(i int, prefix string) model.IP {
		return model.IP{Interface: &i, Address: netip.MustParsePrefix(prefix)}
	}
	prev := model.Result{
		Interfaces: []model.Interface{{Name: "br0"}, {Name: "eth0", Sandbox: "/ns"}},
		IPs:        []model.IP{at(1, "10.0.0.2/24")},
		Routes:     []model.Route{{Dst: netip.MustParsePrefix("10.9.0.0/16")}},
		DNS:        model.DNS{Nameservers: []string{"10.0.0.53"}},
	}
	own := model.Result{
		Interfaces: []model.Interface{{Name: "net1", Sandbox: "/ns"}},
		IPs:        []model.IP{at(0, "10.1.0.2/24")},
		Routes:     []model.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}},
	}
	both := model.Result{
		Interfaces: []model.Interface{{Name: "br0"}, {Name: "eth0", Sandbox: "/ns"}, {Name: "net1", Sandbox: "/ns"}},
		IPs:        []model.IP{at(1, "10.0.0.2/24"), at(2, "10.1.0.2/24")},
		Routes:     []model.Route{{Dst: netip.MustParsePrefix("10.9.0.0/16")}, {Dst: netip.MustParsePrefix("0.0.0.0/0")}},
		DNS:        model.DNS{Nameservers: []string{"10.0.0.53"}},
	}
	changed := prev
	changed.Interfaces = []model.Interface{{Name: "br0"}, {Name: "eth0", MAC: "02:00:00:00:00:01", Sandbox: "/ns"}}
	for _, tt := range []struct {
		name string
		prev *model.Result
		now  model.Result
		want model.Result
	}{
		{"first in the list", nil, own, own},
		{"a second interface", &prev, own, both},
		{"a chained plugin", &prev, changed, changed},
	} {
		if d := cmp.Diff(tt.want, MergeResults(tt.prev, tt.now), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}),
			cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
