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

// Flush deletes the conntrack entries of a namespace that choose selects, and returns them.
func (k *Conntrack) Flush(ns *netns.NS, choose func(state.Connection) bool) ([]state.Connection, error) {
	var cut []state.Connection
	err := k.use(ns, func(t conn) error {
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

// words converts the connection for other packages.
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
		Proto: c.proto, Src: end(c.orig, src, ctProtoSrcPort), Dst: end(c.orig, dst, ctProtoDstPort),
		ReplySrc: end(c.reply, src, ctProtoSrcPort), ReplyDst: end(c.reply, dst, ctProtoDstPort),
	}
}
