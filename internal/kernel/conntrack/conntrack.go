// SPDX-License-Identifier: Apache-2.0

// Package conntrack receives the kernel's events about tracked connections of one network namespace, and counts the
// events that are lost. It knows no pods. Without a Listener the kernel prepares no events.
package conntrack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Constants of linux/netfilter/nfnetlink_compat.h and nfnetlink_conntrack.h.
const (
	groupNew, groupDestroy    = 1, 3
	subsystem                 = unix.NFNL_SUBSYS_CTNETLINK << 8
	msgNew, msgGet, msgDelete = 0, 1, 2
	attrOrig, attrReply       = 9, 10 // counters
	attrPackets, attrBytes    = 1, 2
)

// Sizes in bytes: of an event with room to spare, of a part of a dump, and of the events that wait for a slow reader.
const eventSize, dumpSize, bufferSize = 16 << 10, 64 << 10, 4 << 20

// Kind is what happened to a connection.
type Kind string

// The kinds.
const (
	// New: its first packet passed all packet filters.
	New Kind = "new"
	// End: the kernel has deleted it: it timed out, was closed some time ago, or was flushed.
	End Kind = "end"
	// Tracked: it was there already.
	Tracked Kind = "tracked"
)

// Counters are what passed of a connection. They are zero unless net.netfilter.nf_conntrack_acct was set when it began.
type Counters struct{ Packets, Bytes uint64 }

// Event is an event.
type Event struct {
	Kind Kind
	state.Connection
	// Orig and Reply count packets of the original and of the reply direction, at the End; Counted reports that they do.
	Orig, Reply Counters
	Counted     bool
}

// Listener receives events.
type Listener struct{ sockets map[Kind]*netlink.Listener }

// inOrder is how long an End waits for earlier New events. Under a flood of these it does not: the ends would be lost.
const inOrder = 500 * time.Millisecond

// Listen calls f for each event in ns (nil: the process's own namespace), until ctx ends or the Listener is closed. f is
// called from one goroutine for each kind. The End of a connection comes after its New, unless New events come in faster
// than f returns.
func Listen(ctx context.Context, ns *netns.NS, f func(Event)) (*Listener, error) {
	l := &Listener{sockets: map[Kind]*netlink.Listener{}}
	listen := func(kind Kind, group int, f func(Event)) (err error) {
		one, err := netlink.Listen(ctx, ns, netlink.Subscription{
			Protocol: unix.NETLINK_NETFILTER, Groups: netlink.Group(group), Size: eventSize, Buffer: bufferSize,
		}, func(_ *netlink.Listener, d netlink.Datagram) { each(d.Data, f) })
		if err != nil {
			l.Close()
			return fmt.Errorf("conntrack events: %w", err)
		}
		l.sockets[kind] = one
		return nil
	}
	// A socket for each kind: the kernel counts what each has lost.
	if err := listen(New, groupNew, f); err != nil {
		return nil, err
	}
	order := order{before: l.sockets[New]}
	if err := listen(End, groupDestroy, func(e Event) { order.wait(); f(e) }); err != nil {
		return nil, err
	}
	return l, nil
}

// order delays events until those of another socket, of things that the kernel did before, have been received.
type order struct {
	before *netlink.Listener
	late   bool // it did not become idle in time, and was not idle since
}

// wait waits until no event of the other socket is left.
func (o *order) wait() {
	for began := time.Now(); !o.before.Idle(); time.Sleep(time.Millisecond) {
		if o.late = o.late || time.Since(began) > inOrder; o.late {
			return
		}
	}
	o.late = false
}

// Close stops it. When it returns, f is not called any more.
func (l *Listener) Close() {
	for _, s := range l.sockets {
		s.Close()
	}
	for _, s := range l.sockets {
		<-s.Done()
	}
}

// Done returns a channel that is closed when events are not received any more.
func (l *Listener) Done() <-chan struct{} { return l.sockets[New].Done() }

// Idle reports whether no event waits to be received.
func (l *Listener) Idle() bool { return l.sockets[New].Idle() && l.sockets[End].Idle() }

// Lost returns how many events of a kind were lost since it began, because they were not read in time.
func (l *Listener) Lost(kind Kind) (uint64, error) {
	n, err := l.sockets[kind].Drops()
	if err != nil {
		return 0, fmt.Errorf("conntrack events: lost ones: %w", err)
	}
	return n, nil
}

// each decodes a datagram.
func each(b []byte, f func(Event)) {
	netlink.Messages(b, func(a netlink.Answer) {
		switch a.Kind {
		case subsystem | msgNew:
			decode(New, a, f)
		case subsystem | msgDelete:
			decode(End, a, f)
		}
	})
}

// decode decodes a message.
func decode(kind Kind, a netlink.Answer, f func(Event)) {
	_, body, ok := a.Netfilter()
	if !ok {
		return
	}
	e := Event{Kind: kind}
	if e.Connection, ok = effect.DecodeConnection(body); ok {
		e.count(body)
		f(e)
	}
}

// Dump calls f for each connection that is tracked in ns (nil: the process's own namespace) now. A kernel without
// connection tracking has none.
func Dump(ns *netns.NS, f func(Event)) (err error) {
	sock, err := netlink.Open(ns, netlink.Options{Protocol: unix.NETLINK_NETFILTER, Datagrams: 1, Size: dumpSize})
	if err != nil {
		return fmt.Errorf("conntrack: %w", err)
	}
	defer func() { err = errors.Join(err, sock.Close()) }()
	var b netlink.Batch
	b.Netfilter(subsystem|msgGet, 0, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0)
	_, err = sock.Dump(&b, func(a netlink.Answer) { decode(Tracked, a, f) })
	var refused *netlink.Refused
	switch {
	case errors.As(err, &refused) && (refused.Errno == unix.EINVAL || refused.Errno == unix.EOPNOTSUPP):
		return nil
	case err != nil:
		return fmt.Errorf("conntrack: list: %w", err)
	}
	return nil
}

// count decodes the counters.
func (e *Event) count(body []byte) {
	for kind, into := range map[uint16]*Counters{attrOrig: &e.Orig, attrReply: &e.Reply} {
		if b := netlink.Find(body, kind); b != nil {
			e.Counted = true
			into.Packets, into.Bytes = netlink.BE64(netlink.Find(b, attrPackets)), netlink.BE64(netlink.Find(b, attrBytes))
		}
	}
}
