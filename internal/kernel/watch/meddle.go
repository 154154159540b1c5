// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"context"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Meddled opens a socket in ns (nil: the process's own namespace) and puts a token into the channel, which holds one, when
// anything of the table is made, changed or deleted by another socket than its own. The channel is closed after ctx ends.
func Meddled(ctx context.Context, ns *netns.NS, own Own) (<-chan struct{}, error) {
	filter := append(except(own), unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff})
	return listenNft(ctx, ns, filter, func(b []byte) bool { return names(b, own) })
}

// names tells whether one of the messages is about the table and not by its owner.
func names(b []byte, own Own) bool {
	name := append([]byte(own.Table), 0)
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return true // whatever it is, looking is never wrong
		}
		typ, by, body := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[12:]), b[unix.NLMSG_HDRLEN:size]
		b = b[min((size+3)&^3, len(b)):]
		const nameAt = 4 + unix.NLA_HDRLEN
		if typ>>8 == unix.NFNL_SUBSYS_NFTABLES && typ&0xff != unix.NFT_MSG_NEWGEN && by != own.Port && len(body) > nameAt &&
			bytes.HasPrefix(body[nameAt:], name) {
			return true
		}
	}
	return false
}
