// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

func vlan(m *rtnl.Message, a state.VLANAttrs) { m.Uint16(unix.IFLA_VLAN_ID, uint16(a.ID)) }

func decodeVLAN(data []byte) *state.VLANAttrs {
	a := &state.VLANAttrs{}
	for kind, data := range netlink.Attrs(data) {
		if kind == unix.IFLA_VLAN_ID && len(data) >= 2 {
			a.ID = int(binary.NativeEndian.Uint16(data))
		}
	}
	return a
}
