// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// Commits opens a socket in ns (nil: the process's own namespace) and puts a token into the channel, which holds one, after
// each transaction of nft, whichever process commits it, except from the sockets with these ports. The channel is closed after
// ctx ends.
func Commits(ctx context.Context, ns *netns.NS, except ...uint32) (<-chan struct{}, error) {
	// The last message of a transaction is a packet of its own.
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: lowByte(typeAt, 2)},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.NFT_MSG_NEWGEN, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return listenNft(ctx, ns, filter, func(b []byte) bool {
		others := false
		whole := netlink.Messages(b, func(a netlink.Answer) { others = others || !slices.Contains(except, a.Port) })
		return others || !whole
	})
}
