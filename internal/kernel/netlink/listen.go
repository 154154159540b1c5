// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

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
	// Size is the maximum size of a datagram.
	Size int
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
	file *os.File
	done chan struct{}
	busy atomic.Bool // a datagram may be read, or is in the callback
}

// Listen opens a socket in ns (nil: the process's own namespace) and calls receive for each datagram of the kernel,
// from one goroutine, until ctx ends or the Listener is closed.
func Listen(ctx context.Context, ns *netns.NS, s Subscription, receive func(*Listener, Datagram)) (*Listener, error) {
	fd, err := open(ns, s.Protocol)
	if err != nil {
		return nil, err
	}
	if err := s.join(fd); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	l := &Listener{file: os.NewFile(uintptr(fd), "netlink listener"), done: make(chan struct{})}
	raw, err := l.file.SyscallConn()
	if err != nil {
		l.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, l.Close)
	go func() {
		defer close(l.done)
		defer func() { stop(); l.Close() }()
		l.run(raw, s, receive)
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

func (l *Listener) run(raw syscall.RawConn, s Subscription, receive func(*Listener, Datagram)) {
	buf := make([]byte, s.Size)
	var oob []byte
	if s.Namespaces {
		oob = make([]byte, unix.CmsgSpace(4))
	}
	defer l.busy.Store(false)
	for {
		var n, oobn int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			for {
				l.busy.Store(true)
				n, oobn, _, from, failed = unix.Recvmsg(int(fd), buf, oob, 0)
				switch {
				case errors.Is(failed, unix.EAGAIN):
					l.busy.Store(false)
					return false
				case !errors.Is(failed, unix.EINTR):
					return true
				}
			}
		})
		switch {
		case err != nil: // closed
			return
		case errors.Is(failed, unix.ENOBUFS):
			receive(l, Datagram{NSID: OwnNamespace, Lost: true})
			continue
		case failed != nil:
			return
		}
		if sa, ok := from.(*unix.SockaddrNetlink); ok && sa.Pid == 0 { // from the kernel, not from another process
			receive(l, Datagram{Data: buf[:n], NSID: nsid(oob[:max(oobn, 0)])})
		}
	}
}

// nsid reads the id of the namespace that a datagram comes from.
func nsid(oob []byte) int {
	if len(oob) == 0 {
		return OwnNamespace
	}
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

// Close stops the Listener. Datagrams that were already received may still be passed to the callback.
func (l *Listener) Close() { _ = l.file.Close() }

// Idle reports whether no datagram waits to be received, and none is in the callback, which must not call it.
func (l *Listener) Idle() bool { return !l.waits() && !l.busy.Load() }

// waits reports whether a datagram waits to be received. Of one that does not any more, busy is set before it is read.
func (l *Listener) waits() bool {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return false
	}
	waits := false
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = err == nil && n > 0
	})
	return err == nil && waits
}

// LinkName returns the name of a link in the socket's namespace, "" if there is none.
func (l *Listener) LinkName(index int) string {
	request, err := unix.NewIfreq("")
	if err != nil {
		return ""
	}
	request.SetUint32(uint32(index))
	raw, err := l.file.SyscallConn()
	if err != nil {
		return ""
	}
	var answer error
	err = raw.Control(func(fd uintptr) { answer = unix.IoctlIfreq(int(fd), unix.SIOCGIFNAME, request) })
	if err != nil || answer != nil {
		return ""
	}
	return request.Name()
}
