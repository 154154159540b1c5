// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net/netip"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// Attributes of linux/if_tunnel.h.
const iptunLocal, iptunTTL, iptunTOS, iptunPMTUDiscovery = 2, 4, 5, 10

// ipip requests a device like flannel's: the outer header has the inner one's TTL, and its DF bit. All attributes are
// sent each time, because a change resets those that it does not contain.
func ipip(m *rtnl.Message, a state.IPIPAttrs) {
	m.Attr(iptunLocal, a.Local.AsSlice())
	m.Uint8(iptunTTL, 0)
	m.Uint8(iptunTOS, 0)
	m.Uint8(iptunPMTUDiscovery, 0)
}

func decodeIPIP(data []byte) *state.IPIPAttrs {
	a := &state.IPIPAttrs{}
	for kind, data := range netlink.Attrs(data) {
		if kind == iptunLocal {
			a.Local, _ = netip.AddrFromSlice(data)
		}
	}
	return a
}
