// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// TestPackets sends real packets through compiled tables in real namespaces, and compares what arrives with the
// reference evaluator.
func TestPackets(t *testing.T) { comparePackets(t, newLab(t, false)) }

// TestPacketsAtPorts is the same for pods on bridges.
func TestPacketsAtPorts(t *testing.T) {
	nettest.NeedBridgeNetfilter(t)
	comparePackets(t, newLab(t, true))
}

func comparePackets(t *testing.T, l *lab) {
	ears := l.listen()
	rapid.Check(t, func(rt *rapid.T) {
		d := draw{T: rt, plain: true}
		w := d.world(labPods, 6, 4)
		for i := range w.Pods {
			w.Pods[i] = fit(w.Pods[i])
		}
		p := compile(w, policy.Config{})
		program := func() error { return l.program(p) }
		if l.bridged {
			program = func() error { return l.programPorts(w) }
		}
		if err := program(); err != nil {
			rt.Fatal(err)
		}
		all := l.reachable(w)
		// A sample: each dropped packet costs a timeout.
		all = rapid.Permutation(all).Draw(rt, "order")
		all = all[:min(len(all), 150)]
		arrived, err := ears.send(l, w, all)
		if err != nil {
			rt.Fatal(err)
		}
		for i, packet := range all {
			if want := w.Allowed(packet); arrived[i] != want {
				rt.Fatalf("%s: arrived %t, the specification says %t\n%s\n%s\n%s", describePacket(w, packet), arrived[i], want, describe(w),
					p, l.rules())
			}
		}
	})
}

// ears are the sockets that receive datagrams, connections and pings at all places.
type ears struct {
	datagrams, connections, raw []int
	// round distinguishes the packets of this round from late ones of the last, port is the source port of the next
	// connection: none is reused, because conntrack would match it with an earlier one.
	round, port uint32
}

func ports() []int { return []int{53, 80, 81, 8080} }

func (l *lab) listen() *ears {
	e := &ears{}
	done := map[int]bool{}
	for _, ns := range l.places {
		if done[ns.Fd()] {
			continue
		}
		done[ns.Fd()] = true
		err := ns.Do(func() error {
			for _, port := range ports() {
				u, err := bound(unix.SOCK_DGRAM, netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port)))
				if err != nil {
					return err
				}
				c, err := bound(unix.SOCK_STREAM, netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port)))
				if err != nil {
					return err
				}
				e.datagrams, e.connections = append(e.datagrams, u), append(e.connections, c)
				l.Cleanup(func() { _, _ = unix.Close(u), unix.Close(c) })
				if err := unix.Listen(c, 1024); err != nil {
					return err
				}
			}
			for _, p := range [][2]int{
				{unix.AF_INET, unix.IPPROTO_ICMP},
				{unix.AF_INET6, unix.IPPROTO_ICMPV6},
				{unix.AF_INET, unix.IPPROTO_SCTP},
				{unix.AF_INET6, unix.IPPROTO_SCTP},
			} {
				fd, err := unix.Socket(p[0], unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, p[1])
				if err != nil {
					return err
				}
				e.raw = append(e.raw, fd)
				l.Cleanup(func() { _ = unix.Close(fd) })
			}
			return nil
		})
		if err != nil {
			l.Fatal(err)
		}
	}
	return e
}

func bound(kind int, at netip.AddrPort) (int, error) {
	family := unix.AF_INET6
	if at.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	return fd, errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, sockaddr(at)))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// patience is how long the test waits for packets that should arrive, grace how much longer for those that should not.
const (
	patience = time.Minute
	grace    = 20 * time.Millisecond
)

// send sends one packet of each kind and returns which arrive.
func (e *ears) send(l *lab, w naive.World, all []naive.Packet) ([]bool, error) {
	e.round++
	arrived, talks := make([]bool, len(all)), map[int]int{}
	defer func() {
		for _, fd := range talks {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(fd)
		}
	}()
	for i, p := range all {
		err := l.places[p.Src].Do(func() error {
			if p.Proto == "ICMP" || p.Proto == "SCTP" {
				return e.sendRaw(p, i)
			}
			kind := map[string]int{"TCP": unix.SOCK_STREAM, "UDP": unix.SOCK_DGRAM}[p.Proto]
			e.port++
			fd, err := bound(kind, netip.AddrPortFrom(p.Src, uint16(10000+e.port%50000)))
			if err != nil {
				return err
			}
			to := sockaddr(netip.AddrPortFrom(p.Dst, uint16(p.Port)))
			if kind == unix.SOCK_DGRAM {
				err = unix.Sendto(fd, e.note(nil, i), 0, to)
				return errors.Join(err, unix.Close(fd))
			}
			talks[i] = fd
			if err := unix.Connect(fd, to); !errors.Is(err, unix.EINPROGRESS) {
				return err
			}
			return nil
		})
		if err != nil && !errors.Is(err, unix.EPERM) { // the sender's own rules may reject it immediately
			return nil, fmt.Errorf("%s: %w", describePacket(w, p), err)
		}
	}
	poll := func() (missing bool) {
		e.drain(arrived)
		for i, fd := range talks {
			if n, err := unix.Getpeername(fd); err == nil && n != nil {
				arrived[i] = true
			}
		}
		for i, p := range all {
			missing = missing || !arrived[i] && w.Allowed(p)
		}
		return missing
	}
	for end := time.Now().Add(patience); poll() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(grace)
	poll()
	return arrived, nil
}

// note is the payload of a packet.
func (e *ears) note(b []byte, number int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, e.round), uint32(number))
}

// drain reads what was received.
func (e *ears) drain(arrived []bool) {
	b := make([]byte, 256)
	mark := func(note []byte) {
		if n := int(binary.BigEndian.Uint32(note[4:])); n < len(arrived) && binary.BigEndian.Uint32(note) == e.round {
			arrived[n] = true
		}
	}
	for _, fd := range e.connections { // the backlog is short
		for {
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			_ = unix.Close(c)
		}
	}
	for _, fd := range e.datagrams {
		for {
			if n, _, err := unix.Recvfrom(fd, b, 0); err != nil || n != 8 {
				break
			}
			mark(b)
		}
	}
	for _, fd := range e.raw {
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				break
			}
			if note := noteOf(b[:n]); note != nil {
				mark(note)
			}
		}
	}
}
