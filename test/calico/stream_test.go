// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// stream is what one pod sends another, a datagram every few milliseconds.
type stream struct {
	name    string
	sent    atomic.Int64
	arrived atomic.Int64
	// longest is the longest time in which nothing arrived.
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	stop    func()
}

const pace = 5 * time.Millisecond

// streamTo sends one flow; knocks sends each datagram as a connection of its own, which nothing that is established
// lets through.
func (p *pod) streamTo(to *pod) *stream { return p.send(to, 7000, false) }
func (p *pod) knocksAt(to *pod) *stream { return p.send(to, 7001, true) }

func (p *pod) send(to *pod, port uint16, anew bool) *stream {
	t := p.n.c.t
	t.Helper()
	s := &stream{name: p.name + " to " + to.name, last: time.Now()}
	var in *net.UDPConn
	if err := to.ns.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.IPv4Unspecified(), port)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{}, 2)
	go func() {
		defer func() { ended <- struct{}{} }()
		s.take(in, p.addr)
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		_ = p.ns.Do(func() error { // on the thread that is in the namespace
			s.give(end, netip.AddrPortFrom(to.addr, port), anew)
			return nil
		})
	}()
	s.stop = sync.OnceFunc(func() {
		close(end)
		time.Sleep(200 * time.Millisecond) // what is on its way
		_ = in.Close()
		<-ended
		<-ended
	})
	t.Cleanup(s.stop)
	return s
}

func (s *stream) give(end <-chan struct{}, to netip.AddrPort, anew bool) {
	var conn *net.UDPConn
	var b [8]byte
	for tick := time.NewTicker(pace); ; {
		select {
		case <-end:
			tick.Stop()
			if conn != nil {
				_ = conn.Close()
			}
			return
		case <-tick.C:
		}
		if conn == nil {
			var err error
			if conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to)); err != nil {
				continue
			}
		}
		binary.BigEndian.PutUint64(b[:], uint64(s.sent.Add(1)))
		_, _ = conn.Write(b[:]) // one that is refused is lost
		if anew {
			_ = conn.Close()
			conn = nil
		}
	}
}

func (s *stream) take(in *net.UDPConn, from netip.Addr) {
	for b := make([]byte, 16); ; {
		_, sender, err := in.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || sender.Addr().Unmap() != from {
			continue
		}
		s.arrived.Add(1)
		s.mu.Lock()
		now := time.Now()
		s.longest = max(s.longest, now.Sub(s.last))
		s.last = now
		s.mu.Unlock()
	}
}

// lost is how many datagrams did not arrive until now.
func (s *stream) lost() int64 { return s.sent.Load() - s.arrived.Load() }

// gap is the longest time in which nothing arrived.
func (s *stream) gap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.longest
}
