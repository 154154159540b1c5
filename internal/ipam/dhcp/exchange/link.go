// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// ErrNoLink is wrapped if there is no link of a name.
var ErrNoLink = errors.New("no such interface")

const (
	// carrierTime is how long Raise waits for the carrier of a link: the kernel reports it up to a second late.
	carrierTime = 3 * time.Second
	carrierStep = 5 * time.Millisecond
)

// Link is a container's interface.
type Link struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	MTU   int
	// Up is its administrative state; Running reports whether it can pass packets.
	Up, Running bool
}

// FindLink returns a link by its name.
func FindLink(ns *netns.NS, name string) (Link, error) {
	var l Link
	err := ns.Do(func() error {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return notFound(name, err)
		}
		l = Link{
			Name: name, Index: ifi.Index, MAC: ifi.HardwareAddr, MTU: ifi.MTU,
			Up: ifi.Flags&net.FlagUp != 0, Running: ifi.Flags&net.FlagUp != 0 && ifi.Flags&net.FlagRunning != 0,
		}
		return nil
	})
	return l, err
}

// notFound distinguishes a link that does not exist from a failed query.
func notFound(name string, err error) error {
	fd, serr := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if serr != nil {
		return fmt.Errorf("interface %q: %w", name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	req, rerr := unix.NewIfreq(name)
	if rerr == nil && !errors.Is(unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req), unix.ENODEV) {
		return fmt.Errorf("interface %q: %w", name, err)
	}
	return fmt.Errorf("interface %q: %w", name, ErrNoLink)
}

// SetUp sets a link up or down.
func SetUp(ns *netns.NS, name string, up bool) error {
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
			return err
		}
		flags := req.Uint16() &^ unix.IFF_UP
		if up {
			flags |= unix.IFF_UP
		}
		req.SetUint16(flags)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
	})
	if err != nil {
		return fmt.Errorf("interface %q: %w", name, err)
	}
	return nil
}

// Raise finds a link, sets it up and waits a while until it can pass packets. No carrier is not an error: a server may
// come up later.
func Raise(ctx context.Context, ns *netns.NS, name string) (Link, error) {
	l, err := FindLink(ns, name)
	if err != nil {
		return l, err
	}
	if !l.Up {
		if err := SetUp(ns, name, true); err != nil {
			return l, err
		}
	}
	for waited := time.Duration(0); !l.Running && waited < carrierTime; waited += carrierStep {
		select {
		case <-ctx.Done():
			return l, fmt.Errorf("interface %q: %w", name, context.Cause(ctx))
		case <-time.After(carrierStep):
		}
		if l, err = FindLink(ns, name); err != nil {
			return l, err
		}
	}
	return l, nil
}
