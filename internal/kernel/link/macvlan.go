// SPDX-License-Identifier: Apache-2.0

package link

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// macvlanModes are the kernel's numbers (MACVLAN_MODE_*).
func macvlanModes() map[string]uint32 {
	return map[string]uint32{"private": 1, "vepa": 2, "bridge": 4, "passthru": 8, "source": 16}
}

func macvlan(m *rtnl.Message, a state.MacvlanAttrs) {
	if a.Mode != "" {
		m.Uint32(unix.IFLA_MACVLAN_MODE, macvlanModes()[a.Mode])
	}
	if a.BcQueueLen != nil {
		m.Uint32(unix.IFLA_MACVLAN_BC_QUEUE_LEN, uint32(*a.BcQueueLen))
	}
}

func decodeMacvlan(data []byte) *state.MacvlanAttrs {
	a := &state.MacvlanAttrs{}
	for kind, data := range netlink.Attrs(data) {
		switch kind {
		case unix.IFLA_MACVLAN_MODE:
			a.Mode = nameOf(macvlanModes(), number(data))
		case unix.IFLA_MACVLAN_BC_QUEUE_LEN:
			n := int(number(data))
			a.BcQueueLen = &n
		}
	}
	return a
}

func nameOf(names map[string]uint32, n uint32) string {
	for name, v := range names {
		if v == n {
			return name
		}
	}
	return ""
}
