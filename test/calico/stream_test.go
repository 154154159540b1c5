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
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// host is a pod or a node that sends and receives.
type host struct {
	name string
	ns   *netns.NS
	// addr and addr6 are not set in a cluster without the family.
	addr, addr6 netip.Addr
	// more are ports of the matrix that only this host has.
	more []string
}

func (p *pod) host() host {
	h := host{name: p.name, ns: p.ns, addr: p.addr}
	if p.addr.Is6() {
		h.addr, h.addr6 = netip.Addr{}, p.addr
	}
	if len(p.all) > 1 {
		h.addr6 = p.all[1]
	}
	return h
}

// stream is traffic from one host to another, a datagram every few milliseconds.
type stream struct {
	name    string
	sent    atomic.Int64
	arrived atomic.Int64
	// longest is the longest time without a received datagram.
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	stop    func()
}

const interval = 5 * time.Millisecond

// streamTo sends one flow; connectionsTo sends each datagram as a new connection, which is not allowed as established.
func (p *pod) streamTo(to *pod) *stream      { return send(p.n.c.t, p.host(), to.host(), 7000, false) }
func (p *pod) connectionsTo(to *pod) *stream { return send(p.n.c.t, p.host(), to.host(), 7001, true) }

// send sends datagrams until the stream is stopped.
func send(t *testing.T, from, to host, port uint16, newConn bool) *stream {
	t.Helper()
	s := &stream{name: from.name + " to " + to.name, last: time.Now()}
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
		s.receiveLoop(in, from.addr)
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		_ = from.ns.Do(func() error { // on the thread in the namespace
			s.sendLoop(end, netip.AddrPortFrom(to.addr, port), newConn)
			return nil
		})
	}()
	s.stop = sync.OnceFunc(func() {
		close(end)
		time.Sleep(200 * time.Millisecond) // datagrams in flight
		_ = in.Close()
		<-ended
		<-ended
	})
	t.Cleanup(s.stop)
	return s
}

func (s *stream) sendLoop(end <-chan struct{}, to netip.AddrPort, newConn bool) {
	var conn *net.UDPConn
	var b [8]byte
	for tick := time.NewTicker(interval); ; {
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
		_, _ = conn.Write(b[:]) // a failed write counts as lost
		if newConn {
			_ = conn.Close()
			conn = nil
		}
	}
}

func (s *stream) receiveLoop(in *net.UDPConn, from netip.Addr) {
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

// lost returns the number of datagrams that have not arrived so far.
func (s *stream) lost() int64 { return s.sent.Load() - s.arrived.Load() }

// longestGap returns the longest time without a received datagram.
func (s *stream) longestGap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.longest
}
