// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net/netip"

	"github.com/vishvananda/netlink/nl"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// ipip asks for a device as flannel makes it: the outer header has the inner one's TTL, and forbids fragments only where that
// one does. All is said each time: what a change does not say begins anew.
func ipip(m *rtnl.Message, a state.IPIPAttrs) {
	m.Attr(nl.IFLA_IPTUN_LOCAL, a.Local.AsSlice())
	m.Uint8(nl.IFLA_IPTUN_TTL, 0)
	m.Uint8(nl.IFLA_IPTUN_TOS, 0)
	m.Uint8(nl.IFLA_IPTUN_PMTUDISC, 0)
}

func decodeIPIP(data []byte) *state.IPIPAttrs {
	a := &state.IPIPAttrs{}
	for kind, data := range netlink.Attrs(data) {
		if kind == nl.IFLA_IPTUN_LOCAL {
			a.Local, _ = netip.AddrFromSlice(data)
		}
	}
	return a
}
