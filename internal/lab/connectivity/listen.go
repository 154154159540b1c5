// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

type listenKey struct {
	endpoint string
	addr     netip.Addr
	proto    Proto
}

type listener struct {
	addr   netip.AddrPort
	closer io.Closer
	err    error // of listen
}

type listeners map[listenKey]listener

// listenAll listens on every address of every endpoint, in its namespace, on ports that the kernel chooses. Each socket
// is bound to one address, so that a UDP reply comes from the address to which the request was sent.
func listenAll(endpoints []Endpoint, timeout time.Duration) (listeners, error) {
	all := listeners{}
	for _, e := range endpoints {
		if e.Problem != "" {
			continue
		}
		if e.Guest != nil {
			all.addGuest(e)
			continue
		}
		err := e.NS.Do(func() error {
			for _, addr := range e.Addrs {
				for _, proto := range Protos() {
					if proto.is6() == addr.Is6() && proto.name() != "icmp" {
						all[listenKey{e.Name, addr, proto}] = listen(e.Name, addr, proto, timeout)
					}
				}
			}
			return nil
		})
		if err != nil {
			all.close()
			return nil, fmt.Errorf("connectivity: endpoint %s: %w", e.Name, err)
		}
	}
	return all, nil
}

// addGuest adds the ports at which a guest replies.
func (l listeners) addGuest(e Endpoint) {
	for _, addr := range e.Addrs {
		for _, proto := range Protos() {
			if port := e.Guest.Port(proto); port != 0 && proto.is6() == addr.Is6() && proto.name() != "icmp" {
				l[listenKey{e.Name, addr, proto}] = listener{addr: netip.AddrPortFrom(addr, port)}
			}
		}
	}
}

func (l listeners) close() {
	for _, one := range l {
		if one.closer != nil {
			_ = one.closer.Close()
		}
	}
}

func listen(name string, addr netip.Addr, proto Proto, timeout time.Duration) listener {
	at := netip.AddrPortFrom(addr, 0)
	if proto.name() == "tcp" {
		l, err := net.ListenTCP(string(proto), net.TCPAddrFromAddrPort(at))
		if err != nil {
			return listener{err: fmt.Errorf("listen: %w", shortError(err))}
		}
		go serveTCP(l, name, timeout)
		return listener{addr: l.Addr().(*net.TCPAddr).AddrPort(), closer: l}
	}
	c, err := net.ListenUDP(string(proto), net.UDPAddrFromAddrPort(at))
	if err != nil {
		return listener{err: fmt.Errorf("listen: %w", shortError(err))}
	}
	go serveUDP(c, name)
	return listener{addr: c.LocalAddr().(*net.UDPAddr).AddrPort(), closer: c}
}

// serveTCP replies to the first line of each connection with the endpoint's name and that line, until l is closed.
func serveTCP(l *net.TCPListener, name string, timeout time.Duration) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(timeout))
			line, err := bufio.NewReader(io.LimitReader(c, 256)).ReadString('\n')
			if err == nil {
				_, _ = io.WriteString(c, name+" "+line)
			}
		}()
	}
}

// serveUDP replies to each packet like serveTCP.
func serveUDP(c *net.UDPConn, name string) {
	buf := make([]byte, 512)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		if line := string(buf[:n]); strings.HasSuffix(line, "\n") {
			_, _ = c.WriteToUDPAddrPort([]byte(name+" "+line), from)
		}
	}
}
