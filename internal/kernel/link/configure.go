// SPDX-License-Identifier: Apache-2.0

package link

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// Configure requests one setting of a link: the IPv4 setting of that number, or for IPv6 the address generation mode.
func Configure(index int, s state.Sysctl, v6 bool, number int, value uint32) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWLINK, 0, "set", s, ifinfo(index, 0, 0))
	m.Nest(unix.IFLA_AF_SPEC, func() {
		if v6 {
			m.Nest(unix.AF_INET6, func() { m.Uint8(unix.IFLA_INET6_ADDR_GEN_MODE, uint8(value)) })
			return
		}
		m.Nest(unix.AF_INET, func() {
			m.Nest(unix.IFLA_INET_CONF, func() { m.Uint32(uint16(number), value) })
		})
	})
	return m
}
