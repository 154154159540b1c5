// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Receiver receives the kernel's messages to multicast groups in batches, for families that have thousands of them a
// second: many datagrams cost one system call, and the thread that waits for them is woken once. The runtime's poller
// would be woken by each. All methods but Join, Leave, Drops, Waits and Close are called from one goroutine.
type Receiver struct {
	in inbox

	mu sync.RWMutex // guards fd against Close
	fd int          // -1: closed
}

// OpenReceiver opens a socket in ns (nil: the process's own namespace). Batch is how many datagrams one read returns, each of
// at most s.Size bytes.
func OpenReceiver(ns *netns.NS, s Subscription, batch int) (*Receiver, error) {
	fd, err := open(ns, s.Protocol)
	if err != nil {
		return nil, err
	}
	if err := s.join(fd); err != nil { // also without groups: a socket without an address gets nothing of those of Join
		_ = unix.Close(fd)
		return nil, err
	}
	r := &Receiver{fd: fd, in: inbox{count: batch, size: s.Size, senders: true}}
	if s.Namespaces {
		r.in.control = unix.CmsgSpace(4)
	}
	return r, nil
}

var errReceiverClosed = errors.New("socket is closed")

// use calls f with the socket.
func (r *Receiver) use(f func(fd int) error) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.fd < 0 {
		return errReceiverClosed
	}
	return f(r.fd)
}

// Join adds a multicast group, and Leave removes it.
func (r *Receiver) Join(group int) error { return r.member(unix.NETLINK_ADD_MEMBERSHIP, group) }

// Leave removes a multicast group.
func (r *Receiver) Leave(group int) error { return r.member(unix.NETLINK_DROP_MEMBERSHIP, group) }

func (r *Receiver) member(option, group int) error {
	return r.use(func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, group); err != nil {
			return fmt.Errorf("netlink group %d: %w", group, err)
		}
		return nil
	})
}

// Read calls each for the datagrams that wait, at most a batch, and returns how many there were. It does not wait. Data is
// valid during the call. whole is false if the datagram was longer than the buffer: its last message is missing. What the
// kernel has dropped is counted by Drops only.
func (r *Receiver) Read(each func(data []byte, whole bool)) (n int, err error) {
	err = r.use(func(fd int) error {
		for {
			all, err := r.in.read(fd, false)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return nil
			case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS): // said once, and then there are datagrams
				continue
			case err != nil:
				return fmt.Errorf("netlink receive: %w", err)
			}
			for i, data := range all {
				if r.in.fromKernel(i) {
					each(data, !r.in.truncated(i))
				}
			}
			n = len(all)
			return nil
		}
	})
	return n, err
}

// Waits reports whether a datagram waits.
func (r *Receiver) Waits() bool {
	waits := false
	_ = r.use(func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = err == nil && n > 0
		return nil
	})
	return waits
}

// Drops is as that of a Listener.
func (r *Receiver) Drops() (n uint64, err error) {
	err = r.use(func(fd int) error { n, err = drops(fd); return err })
	return n, err
}

// Close closes the socket, which is not awaited any more, or only by an alarm that has rung.
func (r *Receiver) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
		r.fd = -1
	}
}

// Alarm ends an Await.
type Alarm struct {
	mu sync.Mutex // guards fd against Close
	fd int        // -1: closed
}

// NewAlarm returns an Alarm.
func NewAlarm() (*Alarm, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &Alarm{fd: fd}, nil
}

// Ring ends each Await from now on.
func (a *Alarm) Ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd >= 0 {
		_, _ = unix.Write(a.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// Close releases it. Await is not called any more.
func (a *Alarm) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd >= 0 {
		_ = unix.Close(a.fd)
		a.fd = -1
	}
}

// Descriptor is what an Alarm awaits: a file descriptor that is readable when something waits there, or -1.
type Descriptor interface{ Descriptor() int }

// Descriptor implements Descriptor. It is closed after the alarm has rung.
func (r *Receiver) Descriptor() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.fd
}

// Await waits, on the calling thread, until something waits at one of the descriptors or the alarm rings; rang reports the
// latter. With a limit above 0 it waits no longer than that; without descriptors that is a pause.
func (a *Alarm) Await(limit time.Duration, on ...Descriptor) (rang bool, err error) {
	var space [4]unix.PollFd
	all := append(space[:0], unix.PollFd{Fd: int32(a.fd), Events: unix.POLLIN})
	for _, d := range on {
		all = append(all, unix.PollFd{Fd: int32(d.Descriptor()), Events: unix.POLLIN})
	}
	millis := -1
	if limit > 0 {
		millis = int(limit / time.Millisecond)
	}
	if _, err := unix.Poll(all, millis); err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("poll: %w", err)
	}
	return all[0].Revents != 0, nil
}

// drops reads how many datagrams the kernel has dropped of a socket.
func drops(fd int) (uint64, error) {
	const drops = 8 // SK_MEMINFO_DROPS of linux/sock_diag.h
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("memory of a netlink socket: %w", errno)
	}
	return uint64(info[drops]), nil
}
