// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// ipvlanModes are the kernel's numbers (IPVLAN_MODE_*).
func ipvlanModes() map[string]uint32 { return map[string]uint32{"l2": 0, "l3": 1, "l3s": 2} }

func ipvlan(m *rtnl.Message, a state.IpvlanAttrs) {
	if a.Mode != "" {
		m.Uint16(unix.IFLA_IPVLAN_MODE, uint16(ipvlanModes()[a.Mode]))
	}
}

func decodeIpvlan(data []byte) *state.IpvlanAttrs {
	a := &state.IpvlanAttrs{}
	for kind, data := range netlink.Attrs(data) {
		if kind == unix.IFLA_IPVLAN_MODE && len(data) >= 2 {
			a.Mode = nameOf(ipvlanModes(), uint32(binary.NativeEndian.Uint16(data)))
		}
	}
	return a
}
