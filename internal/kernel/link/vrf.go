// SPDX-License-Identifier: Apache-2.0

package link

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

func vrf(m *rtnl.Message, a state.VRFAttrs) { m.Uint32(unix.IFLA_VRF_TABLE, a.Table) }

func decodeVRF(data []byte) *state.VRFAttrs {
	a := &state.VRFAttrs{}
	for kind, data := range netlink.Attrs(data) {
		if kind == unix.IFLA_VRF_TABLE {
			a.Table = number(data)
		}
	}
	return a
}
