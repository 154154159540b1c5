// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestRouter: who tells a guest of the way out for IPv6 also says that it is a router when the guest asks for its MAC.
// A guest that hears otherwise forgets the way.
func TestRouter(t *testing.T) {
	for _, name := range []string{"flannel", "routed"} {
		for _, binding := range []model.VMBinding{model.VMDirect, model.VMMasquerade} {
			t.Run(name+" "+string(binding), func(t *testing.T) {
				w := newWorld(t, sites()[name], subnet4, subnet6)
				g := w.boot(w.pod(false, true), machine(binding))[0]
				ping(t, g.NS, netip.MustParseAddr("fe80::1%eth0"))
				if said := nettest.Run(t, g.NS, "ip", "-6", "neigh", "show", "to", "fe80::1", "dev",
					"eth0"); !strings.Contains(said, "router") {
					t.Errorf("the guest is told: %s", said)
				}
			})
		}
	}
}
