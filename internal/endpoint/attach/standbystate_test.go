// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestWithhold: the node has no routes to a standby attachment's addresses and does not announce them, because the
// neighbors would redirect traffic to it. The rest is applied.
func TestWithhold(t *testing.T) {
	own, other := netip.MustParsePrefix("10.8.0.9/32"), netip.MustParsePrefix("10.8.0.10/32")
	act := func() Act {
		return Act{Fragment: &state.Fragment{
			Host: state.Space{Routes: []state.Route{{Dst: own, Link: "cali1"}, {Dst: other, Link: "cali1"}}},
			Effects: []state.Effect{
				{Kind: state.Announce, Space: state.Pod, Link: "eth0", Addrs: []netip.Addr{own.Addr()}},
				{Kind: state.FlushConntrack, Space: state.Host},
			},
		}}
	}
	for _, standby := range []bool{false, true} {
		r := &run{rec: Record{Standby: standby, Acts: []Act{{Kind: ActIPAM, IPs: []model.IP{{Address: own}}}}}}
		a := act()
		r.deferAddressState(&a)
		routes, effects := len(a.Fragment.Host.Routes), len(a.Fragment.Effects)
		if !standby {
			if routes != 2 || effects != 2 || r.rec.Deferred != nil {
				t.Errorf("the record is no standby, and has deferred state: %+v", r.rec.Deferred)
			}
			continue
		}
		if routes != 1 || a.Fragment.Host.Routes[0].Dst != other || effects != 1 ||
			a.Fragment.Effects[0].Kind != state.FlushConntrack {
			t.Errorf("applied: %+v", a.Fragment)
		}
		if w := r.rec.Deferred; w == nil || len(w.Host.Routes) != 1 || w.Host.Routes[0].Dst != own {
			t.Errorf("deferred: %+v", w)
		}
	}
}
