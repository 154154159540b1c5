// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// A container on a bridge that is not the gateway solicits routers if IPAM returns no IPv6 address. One whose gateway
// is the bridge does not.
func TestLinkLocalOnTheWire(t *testing.T) {
	for rest, want := range map[string]bool{
		`,"bridge":"sbr0"`:                              true,
		`,"bridge":"sbr0"` + hostLocal:                  true,
		`,"bridge":"sbr0","isGateway":true` + hostLocal: false,
	} {
		h := newHost(t)
		ns := nettest.NS(t, "c1")
		c := conf("1.0.0", "bridge", rest)
		prev := withPrev(c, h.must("bridge", "ADD", c, ns).stdout)
		has := func() bool {
			return strings.Contains(nettest.Run(t, ns, "ip", "-6", "addr", "show", "dev", "eth0", "scope", "link"),
				"inet6 fe80::")
		}
		for deadline := time.Now().Add(time.Minute); want && !has() && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		if got := has(); got != want {
			t.Errorf("%s: link-local address: %t, want %t", rest, got, want)
		}
		h.must("bridge", "CHECK", prev, ns)
		h.must("bridge", "DEL", c, ns)
	}
}
