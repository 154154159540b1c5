// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// rejectCode is one kind of rejection: the words after "reject with" and the kernel's numbers.
type rejectCode struct {
	words string
	kind  uint32
	code  byte
}

// rejectCodes lists the rejections in a table of the family; the first is the default.
func rejectCodes(family byte) []rejectCode {
	reset := rejectCode{"tcp reset", unix.NFT_REJECT_TCP_RST, 0}
	switch family {
	case unix.NFPROTO_IPV4:
		const kind = unix.NFT_REJECT_ICMP_UNREACH
		return []rejectCode{
			{"icmp port-unreachable", kind, 3},
			{"icmp net-unreachable", kind, 0},
			{"icmp host-unreachable", kind, 1},
			{"icmp admin-prohibited", kind, 13},
			reset,
		}
	case unix.NFPROTO_IPV6:
		const kind = unix.NFT_REJECT_ICMP_UNREACH
		return []rejectCode{
			{"icmpv6 port-unreachable", kind, 4},
			{"icmpv6 no-route", kind, 0},
			{"icmpv6 admin-prohibited", kind, 1},
			{"icmpv6 addr-unreachable", kind, 3},
			reset,
		}
	}
	const kind = unix.NFT_REJECT_ICMPX_UNREACH
	return []rejectCode{
		{"icmpx port-unreachable", kind, unix.NFT_REJECT_ICMPX_PORT_UNREACH},
		{"icmpx no-route", kind, unix.NFT_REJECT_ICMPX_NO_ROUTE},
		{"icmpx host-unreachable", kind, unix.NFT_REJECT_ICMPX_HOST_UNREACH},
		{"icmpx admin-prohibited", kind, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED},
		reset,
	}
}

// reject compiles "reject [with …]".
func (c *compiler) reject() error {
	c.pos++
	all := rejectCodes(c.family)
	chosen := all[0]
	if c.accept("with") {
		where := c.position()
		words := c.next() + " " + c.next()
		found := false
		for _, r := range all {
			if r.words == words {
				chosen, found = r, true
			}
		}
		if !found {
			return fmt.Errorf("%s: %q is no answer that a table of this family can give", where, words)
		}
	}
	if chosen.kind == unix.NFT_REJECT_TCP_RST && c.known.l4 != protoTCP {
		if c.known.l4 != 0 {
			return fmt.Errorf("tcp reset answers tcp only")
		}
		g, _ := fieldNamed("meta l4proto")
		c.emitProtocolGuard(g, []byte{protoTCP})
	}
	c.emit(Expr{Name: "reject", Key: chosen.kind, Code: []byte{chosen.code}})
	return nil
}

// rejectText is the inverse of reject.
func rejectText(family byte, e Expr) (string, bool) {
	for i, r := range rejectCodes(family) {
		// The kernel reports no code for a reset.
		if r.kind != e.Key || len(e.Code) > 0 && r.code != e.Code[0] {
			continue
		}
		if i == 0 {
			return "reject", true
		}
		return "reject with " + r.words, true
	}
	return "", false
}
