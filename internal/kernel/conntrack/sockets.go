// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// sockets is the feed of netlink: a socket for each kind, since the kernel counts what each has lost.
type sockets struct{ begin, end socket }

// socket receives events of some kinds.
type socket struct {
	*netlink.Receiver
	cut atomic.Uint64 // of which the message was too long
}

func openSockets(ns *netns.NS) (feed, error) {
	s := &sockets{}
	if err := s.begin.open(ns, netlink.Group(groupNew)); err != nil {
		return nil, err
	}
	if err := s.end.open(ns, netlink.Group(groupDestroy)); err != nil {
		s.begin.Close()
		return nil, err
	}
	return s, nil
}

func (s *socket) open(ns *netns.NS, groups uint32) (err error) {
	s.Receiver, err = netlink.OpenReceiver(ns, netlink.Subscription{
		Protocol: unix.NETLINK_NETFILTER, Groups: groups, Size: eventSize, Buffer: bufferSize,
	}, batchSize)
	return err
}

// next appends the events that wait, at most a batch, and more reports whether others may wait.
func (s *socket) next(to []Event) (all []Event, more bool, err error) {
	n, err := s.Read(func(b []byte, whole bool) { to = s.take(b, whole, to) })
	return to, n == batchSize, err
}

func (s *socket) take(b []byte, whole bool, to []Event) []Event {
	if !whole {
		s.cut.Add(1)
	}
	return decode(b, to)
}

// all appends the events that wait, up to a limit.
func (s *socket) all(to []Event) (_ []Event, err error) {
	for more := true; more && len(to) < maxWaiting; {
		if to, more, err = s.next(to); err != nil {
			return to, err
		}
	}
	return to, nil
}

func (s *socket) lost() (uint64, error) {
	n, err := s.Drops()
	return n + s.cut.Load(), err
}

// ends implements feed.
func (s *sockets) ends(to []Event) ([]Event, error) { return s.end.all(to) }

// next implements feed.
func (s *sockets) next(begun, ended []Event) ([]Event, []Event, bool, error) {
	begun, more, err := s.begin.next(begun)
	return begun, ended, more, err
}

// descriptors implements feed.
func (s *sockets) descriptors() []netlink.Descriptor {
	return []netlink.Descriptor{s.begin.Receiver, s.end.Receiver}
}

// waits implements feed.
func (s *sockets) waits() bool { return s.begin.Waits() || s.end.Waits() }

// lost implements feed.
func (s *sockets) lost(kind Kind) (uint64, error) {
	if kind == End {
		return s.end.lost()
	}
	return s.begin.lost()
}

// close implements feed.
func (s *sockets) close() {
	s.begin.Close()
	s.end.Close()
}
