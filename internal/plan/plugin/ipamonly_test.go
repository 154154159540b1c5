// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-net/weft/internal/model"
)

// TestIPAMOnlyRoutes: the result of calico-ipam has a route to each address, like the result of Calico's own IPAM
// plugin; without them Calico's plugin adds no routes to the pod on the node.
func TestIPAMOnlyRoutes(t *testing.T) {
	addrs := []netip.Prefix{netip.MustParsePrefix("10.244.0.1/32"), netip.MustParsePrefix("fd10::1/128")}
	for typ, want := range map[string][]model.Route{
		"calico-ipam": {{Dst: addrs[0]}, {Dst: addrs[1]}}, "whereabouts": nil,
	} {
		given := model.Result{IPs: []model.IP{{Address: addrs[0]}, {Address: addrs[1]}}}
		raw := json.RawMessage(fmt.Sprintf(`{"type":"weft-ipam","ipam":{"type":%q}}`, typ))
		step, err := IPAMOnly{}.Plan(Input{Conf: model.PluginConf{Type: IPAMOnlyType, Raw: raw}, IPAM: &given})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, step.Result.Routes, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); d != "" {
			t.Errorf("%s: (-want +got):\n%s", typ, d)
		}
		if given.Routes != nil {
			t.Errorf("%s: the allocator's result was modified: %v", typ, given.Routes)
		}
	}
}
