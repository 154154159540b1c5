// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Meddled opens a socket in ns (nil: the process's own namespace) and puts a token into the channel, which holds one, when
// anything of the table is made, changed or deleted by another socket than its own. The channel is closed after ctx ends.
func Meddled(ctx context.Context, ns *netns.NS, own Own) (<-chan struct{}, error) {
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch: netfilter socket: %w", err)
	}
	filter := append(except(own), unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff})
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
			if !lost && !names(buf[:n], own) {
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
