// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
)

// settle is how long changes are gathered before a tick: a link's end is a dozen notifications.
const settle = 30 * time.Millisecond

// Watch gives a tick after every change of links, addresses, routes, rules, neighbours set by hand or forwarding in the
// namespace, one's own included. Changes that come together are one tick. The channel is closed when ctx ends.
func (c *Conn) Watch(ctx context.Context) (<-chan struct{}, error) {
	f, err := c.subscribe()
	if err != nil {
		return nil, fmt.Errorf("netlink notifications: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })
	ticks := make(chan struct{}, 1)
	go func() {
		defer close(ticks)
		defer func() { _ = f.Close() }()
		defer stop()
		buf := make([]byte, 64<<10)
		for ctx.Err() == nil {
			n, err := f.Read(buf)
			lost := errors.Is(err, unix.ENOBUFS) // notifications were lost, which is a change as well
			if err != nil && !lost {
				return
			}
			if !lost && !matters(buf[:n]) {
				continue
			}
			drain(ctx, f, buf)
			select {
			case ticks <- struct{}{}:
			default:
			}
		}
	}()
	return ticks, nil
}

// matters tells whether a notification is about more than a neighbour that the kernel learned or forgot.
func matters(b []byte) bool {
	any := false
	rtnl.Each(b, func(kind uint16, body []byte) {
		if kind != unix.RTM_NEWNEIGH && kind != unix.RTM_DELNEIGH {
			any = true
		} else if n, ok := link.DecodeNeigh(body); ok {
			any = any || n.Permanent || n.Proxy
		}
	})
	return any
}

// drain reads on until nothing came for a while, at most ten times as long.
func drain(ctx context.Context, f *os.File, buf []byte) {
	end := time.Now().Add(10 * settle)
	for ctx.Err() == nil && time.Now().Before(end) {
		_ = f.SetReadDeadline(time.Now().Add(settle))
		if _, err := f.Read(buf); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	_ = f.SetReadDeadline(time.Time{})
	if ctx.Err() != nil { // it ended just before the deadline was taken off
		_ = f.SetReadDeadline(time.Now())
	}
}

func (c *Conn) subscribe() (*os.File, error) {
	var f *os.File
	err := c.ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		groups := uint32(0)
		for _, g := range []uint{
			unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
			unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
		} {
			groups |= 1 << (g - 1)
		}
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		f = os.NewFile(uintptr(fd), "netlink")
		return nil
	})
	return f, err
}
