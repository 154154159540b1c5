// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// OwnNamespace is the NSID of a Datagram from the namespace of the listening socket itself.
const OwnNamespace = -1

// Group returns the bit of a multicast group, for groups up to 31.
func Group(n int) uint32 { return 1 << (n - 1) }

// Subscription selects what a Listener receives.
type Subscription struct {
	// Protocol is the netlink family, Groups the bits of its multicast groups.
	Protocol int
	Groups   uint32
	// Filter is attached before the groups are joined: nothing is received without it.
	Filter []unix.SockFilter
	// Buffer is the size of the receive buffer, for bursts; an unprivileged user gets the default size instead.
	Buffer int
	// Namespaces includes the messages of all namespaces that have an id in the socket's.
	Namespaces bool
	// Size is the maximum size of a datagram; one system call reads up to Batch of them, 0 is one.
	Size, Batch int
	// Gather is how long a datagram waits for others: a wakeup for each of the many about one link would cost more than
	// what is done with them.
	Gather time.Duration
	// Requests are sent one by one before anything is received, for families that must be configured; each has one
	// message.
	Requests []*Batch
}

// Datagram is the result of one read.
type Datagram struct {
	Data []byte // valid during the call
	// NSID is the id of the namespace from which the messages come.
	NSID int
	// Lost means that the kernel dropped messages because the buffer was full: there is no Data, and anything may have
	// changed.
	Lost bool
}

// Listener receives the kernel's messages to multicast groups, or to the socket.
type Listener struct {
	in    *Receiver
	alarm *Alarm
	done  chan struct{}
	busy  atomic.Bool // a datagram may be read, or is in the callback
	await sync.Mutex  // held while the thread waits, which keeps the socket open
}

// Listen opens a socket in ns (nil: the process's own namespace) and calls receive for each datagram of the kernel,
// from one goroutine, until ctx ends or the Listener is closed.
func Listen(ctx context.Context, ns *netns.NS, s Subscription, receive func(*Listener, Datagram)) (*Listener, error) {
	alarm, err := NewAlarm()
	if err != nil {
		return nil, err
	}
	in, err := OpenReceiver(ns, s, max(s.Batch, 1))
	if err != nil {
		alarm.Close()
		return nil, err
	}
	l := &Listener{in: in, alarm: alarm, done: make(chan struct{})}
	stop := context.AfterFunc(ctx, l.Close)
	go func() {
		defer close(l.done)
		defer func() { stop(); alarm.Close(); in.Close() }()
		l.run(s, receive)
	}()
	return l, nil
}

func (s Subscription) join(fd int) error {
	if len(s.Filter) > 0 {
		program := &unix.SockFprog{Len: uint16(len(s.Filter)), Filter: &s.Filter[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
	}
	if s.Namespaces {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
			return fmt.Errorf("events of other namespaces: %w", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: s.Groups}); err != nil {
		return fmt.Errorf("netlink groups: %w", err)
	}
	if s.Buffer > 0 {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, s.Buffer)
	}
	for _, b := range s.Requests {
		if err := request(fd, b); err != nil {
			return err
		}
	}
	return nil
}

// request sends one request and reads its acknowledgment, which is available when the write returns. Messages that the
// request causes come after it.
func request(fd int, b *Batch) error {
	b.AddFlags(unix.NLM_F_ACK)
	b.Close()
	if _, err := unix.Write(fd, b.Bytes()); err != nil {
		return fmt.Errorf("netlink send: %w", err)
	}
	buf := make([]byte, 4<<10)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return fmt.Errorf("netlink receive: %w", err)
	}
	var refused unix.Errno
	Messages(buf[:n], func(a Answer) {
		if _, ok := b.Index(a); ok && a.Done() {
			refused = a.Errno()
		}
	})
	if refused != 0 {
		return refused
	}
	return nil
}

// run receives until the alarm rings, or the socket fails.
func (l *Listener) run(s Subscription, receive func(*Listener, Datagram)) {
	defer l.busy.Store(false)
	for {
		l.await.Lock()
		rang, err := l.alarm.Await(0, l.in)
		l.await.Unlock()
		if err == nil && !rang && s.Gather > 0 {
			rang, err = l.alarm.Await(s.Gather)
		}
		if err != nil || rang {
			return
		}
		l.busy.Store(true)
		for more := true; more; {
			if more, err = l.read(receive); err != nil {
				return
			}
		}
		l.busy.Store(false)
	}
}

// read passes a batch of datagrams on, and reports whether there may be more.
func (l *Listener) read(receive func(*Listener, Datagram)) (more bool, err error) {
	in := &l.in.in
	var datagrams [][]byte
	err = l.in.use(func(fd int) (err error) { datagrams, err = in.read(fd, true); return err })
	switch {
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	case errors.Is(err, unix.EINTR):
		return true, nil
	case errors.Is(err, unix.ENOBUFS):
		receive(l, Datagram{NSID: OwnNamespace, Lost: true})
		return true, nil
	case err != nil:
		return false, err
	}
	for i, data := range datagrams {
		if !in.fromKernel(i) {
			continue
		}
		d := Datagram{Data: data, NSID: OwnNamespace}
		if in.control > 0 {
			d.NSID = nsid(in.controls(i))
		}
		receive(l, d)
	}
	return len(datagrams) == in.count, nil
}

// nsid reads the id of the namespace that a datagram comes from.
func nsid(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return OwnNamespace
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
			return int(int32(Uint32(m.Data)))
		}
	}
	return OwnNamespace
}

// Done returns a channel that is closed when the Listener has stopped.
func (l *Listener) Done() <-chan struct{} { return l.done }

// Close stops the Listener and closes its socket: its groups are free when Close returns. Datagrams that were already received
// may still be passed to the callback.
func (l *Listener) Close() {
	l.alarm.Ring()
	l.await.Lock()
	defer l.await.Unlock()
	l.in.Close()
}

// Idle reports whether no datagram waits to be received, and none is in the callback, which must not call it. Of one that
// does not wait any more, busy is set before it is read.
func (l *Listener) Idle() bool { return !l.in.Waits() && !l.busy.Load() }

// LinkName returns the name of a link in the socket's namespace, "" if there is none.
func (l *Listener) LinkName(index int) string {
	request, err := unix.NewIfreq("")
	if err != nil {
		return ""
	}
	request.SetUint32(uint32(index))
	if l.in.use(func(fd int) error { return unix.IoctlIfreq(fd, unix.SIOCGIFNAME, request) }) != nil {
		return ""
	}
	return request.Name()
}
