// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// interval is the time between two datagrams, and between two messages of a stream.
const interval = 5 * time.Millisecond

// message is the size of a numbered datagram or message.
const message = 8 // bytes

// flow is traffic from one namespace to another: numbered datagrams, or the numbered messages of one TCP connection,
// which are echoed.
type flow struct {
	name     string
	sent     atomic.Uint64 // the last number that was sent
	received atomic.Uint64 // how many arrived
	refused  atomic.Uint64 // datagrams that the sender's kernel did not take

	mu     sync.Mutex
	has    []bool // by number
	failed error  // of a connection: why it ended
	info   func() (retransmitted uint64)

	stop func()
}

// note records an arrival.
func (f *flow) note(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uint64(len(f.has)) <= n {
		f.has = append(f.has, false)
	}
	if !f.has[n] {
		f.has[n] = true
		f.received.Add(1)
	}
}

// fail records the first error of a connection.
func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
	}
}

func (f *flow) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// missing counts the numbers above from, to to, that have not arrived.
func (f *flow) missing(from, to uint64) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := from + 1; i <= to; i++ {
		if i >= uint64(len(f.has)) || !f.has[i] {
			n++
		}
	}
	return n
}

// newest returns the largest number that has arrived.
func (f *flow) newest() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(max(len(f.has), 1) - 1)
}

// numbers calls send with 1, 2, … at each interval until it fails or end is closed. On a busy host it sends less.
func (f *flow) numbers(end <-chan struct{}, send func([]byte) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var b [message]byte
	for n := uint64(1); ; n++ {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		binary.BigEndian.PutUint64(b[:], n)
		f.sent.Store(n)
		if err := send(b[:]); err != nil {
			return
		}
	}
}

// started makes the flow's functions run until stop.
func (f *flow) started(t *testing.T, stop func(), runs ...func(end <-chan struct{})) *flow {
	end := make(chan struct{})
	var wg sync.WaitGroup
	for _, run := range runs {
		wg.Go(func() { run(end) })
	}
	f.stop = sync.OnceFunc(func() {
		close(end)
		stop()
		wg.Wait()
	})
	t.Cleanup(f.stop)
	return f
}

// receiveBuffer is enough for a receiver that gets no processor for minutes.
const receiveBuffer = 16 << 20

// datagrams sends numbered datagrams from one namespace to an address of another.
func datagrams(t *testing.T, name string, from, to *netns.NS, addr netip.Addr, port uint16) *flow {
	t.Helper()
	dst := netip.AddrPortFrom(addr, port)
	in := listenUDP(t, to, dst)
	var out *net.UDPConn
	if err := from.Do(func() (err error) {
		out, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(dst))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	f := &flow{name: name}
	return f.started(t, func() { _ = errors.Join(in.Close(), out.Close()) },
		func(end <-chan struct{}) {
			f.numbers(end, func(b []byte) error {
				if _, err := out.Write(b); err != nil && !errors.Is(err, net.ErrClosed) {
					f.refused.Add(1)
				}
				return nil
			})
		},
		func(<-chan struct{}) {
			var b [2 * message]byte
			for {
				n, err := in.Read(b[:])
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil && n == message {
					f.note(binary.BigEndian.Uint64(b[:]))
				}
			}
		})
}

func listenUDP(t *testing.T, ns *netns.NS, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := ns.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
		}), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// echo serves connections that echo what they get until the test ends.
func echo(t *testing.T, ns *netns.NS, at netip.AddrPort) {
	t.Helper()
	var l *net.TCPListener
	if err := ns.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
}

// stream sends numbered messages on one connection, which the server echoes.
func stream(t *testing.T, name string, from *netns.NS, to netip.AddrPort) *flow {
	t.Helper()
	conn, err := connect(from, to)
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{name: name, info: func() uint64 { return retransmitted(conn) }}
	return f.started(t, func() { _ = conn.Close() },
		func(end <-chan struct{}) {
			f.numbers(end, func(b []byte) error {
				_, err := conn.Write(b)
				if err != nil {
					f.fail(fmt.Errorf("write: %w", err))
				}
				return err
			})
		},
		func(end <-chan struct{}) {
			var b [message]byte
			for want := uint64(1); ; want++ {
				_, err := io.ReadFull(conn, b[:])
				n := binary.BigEndian.Uint64(b[:])
				select {
				case <-end:
					return
				default:
				}
				switch {
				case err != nil:
					f.fail(fmt.Errorf("read: %w", err))
					return
				case n != want:
					f.fail(fmt.Errorf("read %d, want %d", n, want))
					return
				}
				f.note(n)
			}
		})
}

// connectTime is generous: a SYN that is lost is sent again after 1, 3 and 7 s.
const connectTime = 30 * time.Second

func connect(from *netns.NS, to netip.AddrPort) (conn *net.TCPConn, err error) {
	err = from.Do(func() error {
		c, err := (&net.Dialer{Timeout: connectTime}).Dial("tcp", to.String())
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	return conn, err
}

// retransmitted returns how many segments the connection has sent again.
func retransmitted(conn *net.TCPConn) (n uint64) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = uint64(info.Total_retrans)
		}
	})
	return n
}
