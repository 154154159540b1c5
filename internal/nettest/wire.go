// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
)

// IP runs ip with the arguments in line.
func IP(t testing.TB, ns *netns.NS, line string) string {
	t.Helper()
	return Run(t, ns, append([]string{"ip"}, strings.Fields(line)...)...)
}

// ConfigureSubnet assigns a pod's eth0 an address of each family in a subnet, and the gateway addresses to its other
// end, wire in far.
func ConfigureSubnet(t testing.TB, pod, far *netns.NS) {
	t.Helper()
	IP(t, pod, "addr add 10.244.1.5/24 dev eth0")
	IP(t, pod, "addr add fd00:1::5/64 dev eth0 nodad")
	IP(t, far, "addr add 10.244.1.1/24 dev wire")
	IP(t, far, "addr add fd00:1::1/64 dev wire nodad")
	IP(t, pod, "route add default via 10.244.1.1")
	IP(t, pod, "route add default via fd00:1::1")
}

// ConfigureRouted assigns a pod's eth0 a /32 address and a gateway outside any subnet, whose address its other end,
// wire in far, has.
func ConfigureRouted(t testing.TB, pod, far *netns.NS) {
	t.Helper()
	IP(t, pod, "addr add 10.244.1.5/32 dev eth0")
	IP(t, pod, "route add 169.254.1.1 dev eth0 scope link")
	IP(t, pod, "route add default via 169.254.1.1")
	IP(t, far, "addr add 169.254.1.1/32 dev wire")
	IP(t, far, "route add 10.244.1.5 dev wire")
}
