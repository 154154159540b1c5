// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// Attributes of a neighbor table, and the places of numbers in two of them (RTM_GETNEIGHTBL).
const (
	ndtaThreshold3 = 4
	ndtaConfig     = 5 // struct ndt_config
	ndtaStats      = 7 // struct ndt_stats

	sizeofNdtMsg  = 4
	configEntries = 4
	statsFull     = 10 * 8
)

// GetNeighTable returns a request for the neighbor table of IPv4 or IPv6.
func GetNeighTable(six bool) *rtnl.Message {
	header := make([]byte, sizeofNdtMsg)
	header[0] = unix.AF_INET
	if six {
		header[0] = unix.AF_INET6
	}
	return rtnl.New(unix.RTM_GETNEIGHTBL, unix.NLM_F_DUMP, "read", rtnl.Name("neighbor table"), header)
}

// DecodeNeighTable returns the size of the table; ok is false for a message about an interface's parameters. All
// namespaces share a table.
func DecodeNeighTable(body []byte) (t state.NeighborTableStatus, ok bool) {
	if len(body) < sizeofNdtMsg {
		return t, false
	}
	for kind, data := range netlink.Attrs(body[sizeofNdtMsg:]) {
		switch {
		case kind == ndtaThreshold3 && len(data) >= 4:
			t.Max = int(binary.NativeEndian.Uint32(data))
		case kind == ndtaConfig && len(data) >= configEntries+4:
			t.Entries, ok = int(binary.NativeEndian.Uint32(data[configEntries:])), true
		case kind == ndtaStats && len(data) >= statsFull+8:
			t.Full = binary.NativeEndian.Uint64(data[statsFull:])
		}
	}
	return t, ok
}
