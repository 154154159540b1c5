// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func TestChecksums(t *testing.T) {
	for _, spoiled := range []bool{false, true} {
		name, want := "whole", ChecksumsOK
		if spoiled {
			name, want = "broken", ChecksumsBroken
		}
		t.Run(name, func(t *testing.T) {
			a, b := nettest.NS(t, "a"), nettest.NS(t, "b")
			if spoiled {
				nettest.NoChecksumWire(t, a, b)
			} else {
				nettest.Run(t, a, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.Path())
				nettest.Run(t, a, "ip", "link", "set", "eth0", "up")
				nettest.Run(t, b, "ip", "link", "set", "eth0", "up")
			}
			nettest.Run(t, a, "ip", "addr", "add", "10.0.0.1/24", "dev", "eth0")
			nettest.Run(t, b, "ip", "addr", "add", "10.0.0.2/24", "dev", "eth0")
			nettest.Run(t, a, "ip", "addr", "add", "fd00::1/64", "dev", "eth0", "nodad")
			nettest.Run(t, b, "ip", "addr", "add", "fd00::2/64", "dev", "eth0", "nodad")
			nettest.Run(t, a, "ping", "-c1", "-W20", "10.0.0.2")
			for _, to := range []string{"10.0.0.2", "fd00::2"} {
				v, err := Checksums(t.Context(), a, netip.MustParseAddr(to))
				for tries := 0; tries < 20 && err == nil && v == Unknown; tries++ { // replies come late on a busy host
					v, err = Checksums(t.Context(), a, netip.MustParseAddr(to))
				}
				if err != nil || v != want {
					t.Errorf("to %s: %s, %v, want %s", to, v, err, want)
				}
			}
			nettest.Run(t, b, "ip", "link", "set", "eth0", "down")
			if v, err := Checksums(t.Context(), a, netip.MustParseAddr("10.0.0.2")); err != nil || v != Unknown {
				t.Errorf("where nobody is: %s, %v", v, err)
			}
		})
	}
}
