// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestRouter: the sender of router advertisements has the router flag in its neighbor advertisements. Without it a
// guest removes its default route.
func TestRouter(t *testing.T) {
	for _, name := range []string{"flannel", "routed"} {
		for _, binding := range []model.VMBinding{model.VMDirect, model.VMMasquerade} {
			t.Run(name+" "+string(binding), func(t *testing.T) {
				w := newWorld(t, sites()[name], subnet4, subnet6)
				g := w.boot(w.pod(false, true), testInput(binding))[0]
				ping(t, g.NS, netip.MustParseAddr("fe80::1%eth0"))
				if entry := nettest.Run(t, g.NS, "ip", "-6", "neigh", "show", "to", "fe80::1", "dev",
					"eth0"); !strings.Contains(entry, "router") {
					t.Errorf("the guest's neighbor entry: %s", entry)
				}
			})
		}
	}
}
