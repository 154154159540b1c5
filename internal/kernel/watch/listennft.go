// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// listenNft hears in ns (nil: the process's own namespace) what happens to tables of nft, as far as the filter lets it through, and
// puts a token into the channel, which holds one, for what is meant, and when something was lost. The channel is closed after ctx ends.
func listenNft(ctx context.Context, ns *netns.NS, filter []unix.SockFilter, meant func([]byte) bool) (<-chan struct{}, error) {
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch: netfilter socket: %w", err)
	}
	// The filter first: nothing is ever heard without it.
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch: nft group: %w", err)
	}
	f := os.NewFile(uintptr(fd), "nft watch")
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		defer func() { stop(); _ = f.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := f.Read(buf)
			lost := errors.Is(err, unix.ENOBUFS)
			if err != nil && !lost {
				return // closed
			}
			if !lost && !meant(buf[:n]) {
				continue
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, nil
}
