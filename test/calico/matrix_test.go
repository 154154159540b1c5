// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// matrix has servers in all hosts, to try new connections from each host to each other one.
type matrix struct {
	t     *testing.T
	hosts []host
}

// matrixPorts are the ports of servers.
func matrixPorts() []string { return []string{"tcp/5000", "tcp/5001", "udp/6000", "udp/6001"} }

// matrixPorts6 are those of IPv6, in a cluster that has it.
func matrixPorts6() []string {
	return []string{"tcp6/5000", "tcp6/5001", "udp6/6000", "udp6/6001", echo6}
}

// echo is the "port" of an ICMP echo request, echo6 that of one of ICMPv6.
const echo, echo6 = "icmp/8", "icmp6/128"

// serveMatrix starts servers that answer what they receive.
func serveMatrix(t *testing.T, hosts []host) *matrix {
	t.Helper()
	for _, h := range hosts {
		var families []string
		if h.addr.IsValid() {
			families = append(families, "4")
		}
		if h.addr6.IsValid() {
			families = append(families, "6")
		}
		for _, port := range matrixPorts() {
			network, number, _ := strings.Cut(port, "/")
			for _, family := range families {
				err := h.ns.Do(func() error {
					if network == "udp" {
						return echoDatagrams(t, network+family, ":"+number)
					}
					return echoStreams(t, network+family, ":"+number)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return &matrix{t: t, hosts: hosts}
}

func echoDatagrams(t *testing.T, network, addr string) error {
	conn, err := net.ListenPacket(network, addr)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		for b := make([]byte, 64); ; {
			n, from, err := conn.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteTo(b[:n], from)
			}
		}
	}()
	return nil
}

func echoStreams(t *testing.T, network, addr string) error {
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return nil
}

// host returns the host of a name.
func (m *matrix) host(name string) host {
	return m.hosts[slices.IndexFunc(m.hosts, func(h host) bool { return h.name == name })]
}

// tries is how often a connection is tried that is not answered. One is not enough on a busy host.
const tries, tryLimit = 3, time.Second

// answered returns nil if a new connection is answered, otherwise the error of the last one.
func answered(from, to host, port string) (err error) {
	network, number, _ := strings.Cut(port, "/")
	network, six := strings.CutSuffix(network, "6")
	addr := to.addr
	if six {
		addr = to.addr6
	}
	for range tries {
		err = from.ns.Do(func() error {
			if network == "icmp" {
				return ping(addr)
			}
			family := "4"
			if six {
				family = "6"
			}
			conn, err := net.DialTimeout(network+family, net.JoinHostPort(addr.String(), number), tryLimit)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(tryLimit))
			if _, err := io.WriteString(conn, "x"); err != nil {
				return err
			}
			_, err = conn.Read(make([]byte, 1))
			return err
		})
		if err == nil {
			return nil
		}
	}
	return err
}

// ping sends an ICMP echo request, and waits for the answer.
func ping(to netip.Addr) error {
	network, kind, answer := "ip4:icmp", byte(8), byte(0)
	if to.Is6() {
		network, kind, answer = "ip6:ipv6-icmp", 128, 129 // the kernel computes its checksum
	}
	conn, err := net.DialIP(network, nil, &net.IPAddr{IP: to.AsSlice()})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(tryLimit))
	id := rand.N[uint16](0xffff)
	request := []byte{kind, 0, 0, 0, byte(id >> 8), byte(id), 0, 1}
	if to.Is4() {
		sum := ^(uint16(8)<<8 + id + 1)
		if uint32(8)<<8+uint32(id)+1 > 0xffff {
			sum--
		}
		request[2], request[3] = byte(sum>>8), byte(sum)
	}
	if _, err := conn.Write(request); err != nil {
		return err
	}
	for b := make([]byte, 256); ; {
		n, _, err := conn.ReadFromIP(b) // without the IP header
		if err != nil {
			return err
		}
		if n >= len(request) && b[0] == answer && bytes.Equal(b[4:8], request[4:8]) {
			return nil
		}
	}
}

// verdict is whether a new connection is answered.
type verdict struct {
	from, to, port string
	allowed        bool
	// err is why it is not answered.
	err error
}

func (v verdict) name() string { return v.from + " " + v.to + " " + v.port }

// try tries all connections for which want is nil or has a verdict.
func (m *matrix) try(want map[string]bool) []verdict {
	var all []verdict
	for _, from := range m.hosts {
		for _, to := range m.hosts {
			ports := to.more
			if to.addr.IsValid() {
				ports = append(matrixPorts(), to.more...)
			}
			for _, port := range ports {
				v := verdict{from: from.name, to: to.name, port: port}
				if _, is := want[v.name()]; from.name != to.name && (want == nil || is) {
					all = append(all, v)
				}
			}
		}
	}
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			all[i].err = answered(m.host(all[i].from), m.host(all[i].to), all[i].port)
			all[i].allowed = all[i].err == nil
		})
	}
	wait.Wait()
	return all
}

// wrong returns the connections whose verdicts are not the wanted ones.
func (m *matrix) wrong(want map[string]bool) (wrong []string) {
	all := m.try(want)
	if len(all) != len(want) {
		m.t.Fatalf("%d of %d connections are in the matrix", len(all), len(want))
	}
	for _, v := range all {
		if v.allowed != want[v.name()] {
			wrong = append(wrong, fmt.Sprintf("%s: allowed %t", v.name(), v.allowed))
		}
	}
	return wrong
}

// verdicts returns a line for each pair of hosts, with the ports at which connections are allowed.
func (m *matrix) verdicts() string {
	var b strings.Builder
	pair := ""
	for _, v := range m.try(nil) {
		if now := v.from + " -> " + v.to; now != pair {
			pair = now
			fmt.Fprintf(&b, "\n%-18s", pair)
		}
		if v.allowed {
			fmt.Fprintf(&b, " %s", v.port)
		}
	}
	return strings.TrimPrefix(b.String(), "\n") + "\n"
}

// connection is a TCP connection on which a byte is sent every few milliseconds and answered.
type connection struct {
	name    string
	answers atomic.Int64
	err     atomic.Pointer[error]
}

// connect opens a connection to a server of the matrix.
func connect(t *testing.T, from, to host, port uint16) *connection {
	t.Helper()
	c := &connection{name: fmt.Sprintf("%s to %s:%d", from.name, to.name, port)}
	var conn net.Conn
	err := from.ns.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp4", netip.AddrPortFrom(to.addr, port).String(), limit)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		b := make([]byte, 1)
		for {
			_, err := conn.Write(b)
			if err == nil {
				_, err = conn.Read(b)
			}
			if err != nil {
				c.err.Store(&err)
				return
			}
			c.answers.Add(1)
			time.Sleep(interval)
		}
	}()
	return c
}

// ended returns why the connection has ended; nil: it has not.
func (c *connection) ended() error {
	if err := c.err.Load(); err != nil {
		return *err
	}
	return nil
}
