// SPDX-License-Identifier: Apache-2.0

// Package conntrack receives the kernel's events about tracked connections of one network namespace, and counts the
// events that are lost. It knows no pods. Without a Listener the kernel prepares no events.
package conntrack

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	attrProtocol              = 4 // of these the state of TCP:
	attrTCP, attrTCPState     = 1, 1
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
	// State is the state of a TCP connection, as the kernel tracks it; empty: it is not known.
	State string
	// Orig and Reply count packets of the original and of the reply direction, at the End; Counted reports that they do.
	Orig, Reply Counters
	Counted     bool
}

// Listener receives events.
type Listener struct{ sockets map[Kind]*netlink.Listener }

// gather is how long events wait for others, so that thousands a second do not cost a wakeup each.
const gather = 2 * time.Millisecond

// Listen calls f for each event in ns (nil: the process's own namespace), until ctx ends or the Listener is closed. f is
// called from two goroutines. The End of a connection comes after its New, unless New events come faster than f returns.
func Listen(ctx context.Context, ns *netns.NS, f func(Event)) (*Listener, error) {
	l := &Listener{sockets: map[Kind]*netlink.Listener{}}
	listen := func(kind Kind, group int, idle func(*netlink.Listener), f func(Event)) error {
		one, err := netlink.Listen(ctx, ns, netlink.Subscription{
			Protocol: unix.NETLINK_NETFILTER, Groups: netlink.Group(group), Size: eventSize, Buffer: bufferSize,
			Gather: gather, Idle: idle,
		}, func(_ *netlink.Listener, d netlink.Datagram) { each(d.Data, f) })
		if err != nil {
			l.Close()
			return fmt.Errorf("conntrack events: %w", err)
		}
		l.sockets[kind] = one
		return nil
	}
	// A socket for each kind: the kernel counts what each has lost.
	ends := ends{deliver: f}
	if err := listen(New, groupNew, ends.flush, f); err != nil {
		return nil, err
	}
	begins := l.sockets[New]
	if err := listen(End, groupDestroy, nil, func(e Event) { ends.add(e); ends.flush(begins) }); err != nil {
		return nil, err
	}
	return l, nil
}

// ends are the ends of connections that wait until all beginnings before them have been delivered.
type ends struct {
	deliver func(Event)
	mu      sync.Mutex
	waiting []Event
}

// maxEnds is how many ends wait: under a flood of beginnings there is no moment without any.
const maxEnds = 4096

func (e *ends) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = append(e.waiting, event)
}

// flush delivers the ends if no beginning waits, which is then the case for all that the kernel has reported before them.
// It is called for each end, and when there is no beginning any more.
func (e *ends) flush(begins *netlink.Listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 || !begins.Idle() && len(e.waiting) < maxEnds {
		return
	}
	for _, event := range e.waiting {
		e.deliver(event)
	}
	e.waiting = e.waiting[:0]
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
		e.State = stateName(netlink.Find(netlink.Find(netlink.Find(body, attrProtocol), attrTCP), attrTCPState))
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

// states returns the names of the states of TCP, in the order of enum tcp_conntrack of
// linux/netfilter/nf_conntrack_tcp.h.
func states() []string {
	return []string{
		"none", "syn-sent", "syn-recv", "established", "fin-wait", "close-wait", "last-ack", "time-wait", "close", "syn-sent2",
	}
}

func stateName(b []byte) string {
	if names := states(); len(b) == 1 && int(b[0]) < len(names) {
		return names[b[0]]
	}
	return ""
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
