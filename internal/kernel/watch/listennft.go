// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// datagramSize is the maximum size of a datagram of notifications.
const datagramSize = 64 << 10

// listenNft receives the nft notifications in ns (nil: the process's own namespace) that the filter passes, and puts a
// token into the channel, which holds one, for those that meant selects, and when messages were lost. The channel is
// closed after ctx ends.
func listenNft(
	ctx context.Context, ns *netns.NS, filter []unix.SockFilter, meant func([]byte) bool,
) (<-chan struct{}, error) {
	tokens := make(chan struct{}, 1)
	l, err := netlink.Listen(ctx, ns, netlink.Subscription{
		Protocol: unix.NETLINK_NETFILTER, Groups: netlink.Group(unix.NFNLGRP_NFTABLES), Filter: filter, Size: datagramSize,
	}, func(_ *netlink.Listener, d netlink.Datagram) {
		if d.Lost || meant(d.Data) {
			notify(tokens)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch: nftables: %w", err)
	}
	closeAfter(l, tokens)
	return tokens, nil
}

// notify puts a token into a channel that holds one, unless it has one.
func notify(tokens chan struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// closeAfter closes the channel when the listener has ended.
func closeAfter(l *netlink.Listener, tokens chan struct{}) {
	go func() {
		<-l.Done()
		close(tokens)
	}()
}
