// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"context"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// ExternalChanges opens a socket in ns (nil: the process's own namespace) and puts a token into the channel, which holds one,
// when another socket than the owner's adds, changes or deletes an object of the table. The channel is closed after ctx
// ends.
func ExternalChanges(ctx context.Context, ns *netns.NS, own Owner) (<-chan struct{}, error) {
	filter := append(except(own), unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff})
	return listenNft(ctx, ns, filter, func(b []byte) bool { return names(b, own) })
}

// names reports whether one of the messages is about the table and not from its owner.
func names(b []byte, own Owner) bool {
	name, found := append([]byte(own.Table), 0), false
	whole := netlink.Messages(b, func(a netlink.Answer) {
		const nameAt = 4 + unix.NLA_HDRLEN
		found = found || a.Kind>>8 == unix.NFNL_SUBSYS_NFTABLES && a.Kind&0xff != unix.NFT_MSG_NEWGEN && a.Port != own.Port &&
			len(a.Body) > nameAt && bytes.HasPrefix(a.Body[nameAt:], name)
	})
	return found || !whole // in doubt report a change: a needless check is harmless
}
