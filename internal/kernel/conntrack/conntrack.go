// SPDX-License-Identifier: Apache-2.0

// Package conntrack receives the kernel's events about tracked connections of one network namespace, and counts the
// events that are lost. It knows no pods. Without a Listener the kernel prepares no events, and there is no program.
package conntrack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Constants of linux/netfilter/nfnetlink_compat.h.
const (
	groupNew, groupUpdate, groupDestroy = 1, 2, 3
	subsystem                           = unix.NFNL_SUBSYS_CTNETLINK << 8
	msgNew, msgGet, msgDelete           = 0, 1, 2
	msgStats                            = 5 // IPCTNL_MSG_CT_GET_STATS
)

// Sizes in bytes: of an event with room to spare, of a part of a dump, and of a socket's events that wait for a slow reader.
const eventSize, dumpSize, bufferSize = 2 << 10, 64 << 10, 4 << 20

const (
	// batchSize is how many events one system call reads.
	batchSize = 64
	// gather is how long events wait for others, so that thousands a second do not cost a wakeup each. After each wakeup the
	// runtime's monitor looks at this thread every 20 microseconds for a millisecond, which at a tenth of this time was a third
	// of the agent's work for events. Sockets and ring have room for the events of several times of it.
	gather = 50 * time.Millisecond
	// maxWaiting is how many later events wait at most until all beginnings before them have been delivered: under a flood of
	// beginnings there is no moment without any.
	maxWaiting = 4096
)

// Kind is what happened to a connection.
type Kind string

// The kinds.
const (
	// New: its first packet passed all packet filters.
	New Kind = "new"
	// Update: the state of a TCP connection has changed.
	Update Kind = "update"
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

// feed is where beginnings and ends come from. All methods but waits and lost are called from one goroutine.
type feed interface {
	// ends appends the ends that wait, up to a limit. Their beginnings wait at next.
	ends(to []Event) ([]Event, error)
	// next appends a batch of beginnings that wait, and ends after theirs; more reports whether others may wait.
	next(begun, ended []Event) (b, e []Event, more bool, err error)
	// descriptors are readable when events wait.
	descriptors() []netlink.Descriptor
	waits() bool
	// lost returns how many events of a kind had no room.
	lost(kind Kind) (uint64, error)
	close()
}

// Listener receives events.
type Listener struct {
	deliver               func([]Event)
	feed                  feed
	why                   error // why feed is not that of eBPF
	updates               socket
	alarm                 *netlink.Alarm
	done                  chan struct{}
	busy                  atomic.Bool // events may be read, or are delivered
	begun, updated, ended []Event     // the current batches
}

// Source opens Listeners. Its zero value is ready.
type Source struct {
	mu      sync.Mutex
	refused error // this process may not load the programs; they are not tried again
}

// Listen calls f with the events in ns (nil: the process's own namespace), some at a time, until ctx ends or the Listener is
// closed. f is called from one goroutine, and keeps nothing of its argument. The End of a connection, and its Updates, come
// after its New, unless New events come faster than f returns. There are no Updates before FollowStates. Events come by
// eBPF, or else by netlink: see Fallback.
func (s *Source) Listen(ctx context.Context, ns *netns.NS, f func([]Event)) (*Listener, error) {
	from, why := s.openRing(ns)
	if why != nil {
		var err error
		if from, err = openSockets(ns); err != nil {
			return nil, fmt.Errorf("conntrack events: %w", err)
		}
	}
	l, err := listen(ctx, ns, from, f)
	if err != nil {
		return nil, err
	}
	l.why = why
	return l, nil
}

// openRing is openRing, unless this process was not permitted to: trying takes a tenth of a second.
func (s *Source) openRing(ns *netns.NS) (feed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused != nil {
		return nil, s.refused
	}
	from, err := openRing(ns)
	if errors.Is(err, unix.EPERM) {
		s.refused = err
	}
	return from, err
}

// listen is Listen with a feed, which it closes.
func listen(ctx context.Context, ns *netns.NS, from feed, f func([]Event)) (l *Listener, err error) {
	l = &Listener{deliver: f, feed: from, done: make(chan struct{})}
	defer func() {
		if err != nil {
			l.release()
			err = fmt.Errorf("conntrack events: %w", err)
		}
	}()
	if l.alarm, err = netlink.NewAlarm(); err != nil {
		return nil, err
	}
	if err = l.updates.open(ns, 0); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, l.alarm.Ring)
	go func() {
		defer func() { stop(); l.release(); close(l.done) }()
		l.run()
	}()
	return l, nil
}

// Fallback returns why events come by netlink, which costs the connections more; nil: they come by eBPF.
func (l *Listener) Fallback() error { return l.why }

// release closes what is open.
func (l *Listener) release() {
	l.feed.close()
	if l.updates.Receiver != nil {
		l.updates.Close()
	}
	if l.alarm != nil {
		l.alarm.Close()
	}
	l.busy.Store(false)
}

// FollowStates has Updates delivered from now on, or not any more. It costs a message of the kernel for each change.
func (l *Listener) FollowStates(on bool) error {
	change := l.updates.Leave
	if on {
		change = l.updates.Join
	}
	if err := change(groupUpdate); err != nil {
		return fmt.Errorf("conntrack events of states: %w", err)
	}
	return nil
}

// run receives until the alarm rings, or a socket fails.
func (l *Listener) run() {
	on := append(l.feed.descriptors(), l.updates.Receiver)
	for {
		l.busy.Store(false)
		rang, err := l.alarm.Await(0, on...)
		if err != nil || rang {
			return
		}
		l.busy.Store(true)
		for some := true; some; {
			if some, err = l.round(); err != nil {
				return
			}
		}
		l.busy.Store(false)
		if rang, err := l.alarm.Await(gather); err != nil || rang {
			return
		}
	}
}

// round delivers what waits, and reports whether there was anything. Ends that have a socket of their own are read first and
// delivered last: what the kernel has reported before them is there when they are read. The same holds for updates.
func (l *Listener) round() (some bool, err error) {
	if l.ended, err = l.feed.ends(l.ended[:0]); err != nil {
		return false, err
	}
	if l.updated, err = l.updates.all(l.updated[:0]); err != nil {
		return false, err
	}
	for read, more := 0, true; more && read < maxWaiting && len(l.ended) < 2*maxWaiting; read += len(l.begun) {
		if l.begun, l.ended, more, err = l.feed.next(l.begun[:0], l.ended); err != nil {
			return false, err
		}
		if len(l.begun) > 0 {
			some = true
			l.deliver(l.begun)
		}
	}
	for _, batch := range [][]Event{l.updated, l.ended} {
		if len(batch) > 0 {
			some = true
			l.deliver(batch)
		}
	}
	return some, nil
}

// Close stops it. When it returns, f is not called any more.
func (l *Listener) Close() {
	l.alarm.Ring()
	<-l.done
}

// Done returns a channel that is closed when events are not received any more.
func (l *Listener) Done() <-chan struct{} { return l.done }

// Idle reports whether no event waits to be received, and none is in f.
func (l *Listener) Idle() bool {
	return !l.feed.waits() && !l.updates.Waits() && !l.busy.Load()
}

// Lost returns how many events of a kind were lost since it began, because they were not read in time.
func (l *Listener) Lost(kind Kind) (n uint64, err error) {
	if kind == Update {
		n, err = l.updates.lost()
	} else {
		n, err = l.feed.lost(kind)
	}
	if err != nil {
		return 0, fmt.Errorf("conntrack events: lost ones: %w", err)
	}
	return n, nil
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
	_, err = sock.Dump(&b, func(a netlink.Answer) {
		if _, body, ok := a.Netfilter(); ok {
			e := Event{Kind: Tracked}
			if e.parse(body) {
				f(e)
			}
		}
	})
	var refused *netlink.Refused
	switch {
	case errors.As(err, &refused) && (refused.Errno == unix.EINVAL || refused.Errno == unix.EOPNOTSUPP):
		return nil
	case err != nil:
		return fmt.Errorf("conntrack: list: %w", err)
	}
	return nil
}
