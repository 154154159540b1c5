// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

const ctProtoSrcPort = 2

// Cut goes through what is tracked in a namespace and forgets the connections that are chosen. It gives those.
func (k *Tracker) Cut(ns *netns.NS, choose func(state.Connection) bool) ([]state.Connection, error) {
	var cut []state.Connection
	err := k.use(ns, func(t tracker) error {
		return t.pickIf([]byte{unix.AF_INET, unix.AF_INET6}, func(c connection) bool {
			s := c.words()
			if !choose(s) {
				return false
			}
			cut = append(cut, s)
			return true
		})
	})
	return cut, err
}

// words are the connection as others know it.
func (c connection) words() state.Connection {
	src, dst := uint16(ctIP4Src), uint16(ctIP4Dst)
	if c.v6 {
		src, dst = ctIP6Src, ctIP6Dst
	}
	end := func(tuple []byte, addr, port uint16) netip.AddrPort {
		n := uint16(0)
		if p := netlink.Find(netlink.Find(tuple, ctTupleProto), port); len(p) == 2 {
			n = binary.BigEndian.Uint16(p)
		}
		return netip.AddrPortFrom(address(tuple, addr), n)
	}
	return state.Connection{
		Proto: c.proto, From: end(c.orig, src, ctProtoSrcPort), To: end(c.orig, dst, ctProtoDstPort),
		Answers: end(c.reply, src, ctProtoSrcPort), Back: end(c.reply, dst, ctProtoDstPort),
	}
}
