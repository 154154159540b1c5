// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The first words of requests. The answer to a datagram has the same size, so that it meets the same MTU.
const (
	wordHello  = "hello"  // TCP: the answer is the server's name and the client's address
	wordEcho   = "echo"   // TCP: what follows comes back, until the client closes
	wordSeen   = "seen"   // TCP: with a cookie, the answer is the number of its datagrams
	wordAsk    = "weft?"  // UDP: answered
	wordAnswer = "weft!"  // UDP: the answer
	wordSpoof  = "spoof?" // UDP: counted by its cookie, and not answered
)

// headerSize is the part of a datagram with words; what follows is returned as it was.
const headerSize = 128

// serverIdle is how long a connection may be silent.
const serverIdle = time.Minute

// Server answers probes.
type Server struct {
	// Name identifies the server in its answers; it has no spaces.
	Name string
	mu   sync.Mutex
	seen map[string]int // spoofed datagrams by cookie
}

// Serve answers on the TCP and UDP ports, in both families, until ctx ends.
func (s *Server) Serve(ctx context.Context, ports []int) error {
	s.seen = map[string]int{}
	var closers []io.Closer
	defer func() {
		for _, c := range closers {
			_ = c.Close()
		}
	}()
	for _, port := range ports {
		at := ":" + strconv.Itoa(port)
		var listen net.ListenConfig
		l, err := listen.Listen(ctx, "tcp", at)
		if err != nil {
			return fmt.Errorf("port %d: %w", port, err)
		}
		closers = append(closers, l)
		go s.serveTCP(l)
		for _, six := range []bool{false, true} {
			c, err := listenUDP(ctx, port, six)
			if err != nil && six {
				continue // a host without IPv6
			}
			if err != nil {
				return fmt.Errorf("port %d: %w", port, err)
			}
			closers = append(closers, c)
			go s.serveUDP(c)
		}
	}
	<-ctx.Done()
	return nil
}

func (s *Server) serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, or the client is gone
			continue
		}
		go func() {
			defer func() { _ = c.Close() }()
			s.serveConn(c)
		}()
	}
}

func (s *Server) serveConn(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(serverIdle))
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	switch word {
	case wordHello:
		_, _ = fmt.Fprintf(c, "%s %s\n", s.Name, c.RemoteAddr())
	case wordSeen:
		s.mu.Lock()
		n := s.seen[rest]
		s.mu.Unlock()
		_, _ = fmt.Fprintf(c, "%d\n", n)
	case wordEcho:
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(serverIdle))
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// listenUDP returns a socket that reports to which of the host's addresses a datagram was sent.
func listenUDP(ctx context.Context, port int, six bool) (*net.UDPConn, error) {
	listen := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if e := raw.Control(func(fd uintptr) {
			if six {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
			}
		}); e != nil {
			return e
		}
		return err
	}}
	network := "udp4"
	if six {
		network = "udp6"
	}
	c, err := listen.ListenPacket(ctx, network, ":"+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	udp, ok := c.(*net.UDPConn)
	if !ok {
		return nil, fmt.Errorf("%T is no UDP socket", c)
	}
	return udp, nil
}

func (s *Server) serveUDP(c *net.UDPConn) {
	buf, info := make([]byte, 64<<10), make([]byte, 128)
	for {
		n, infoSize, _, from, err := c.ReadMsgUDP(buf, info)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < headerSize {
			continue // an ICMP error of an earlier answer, or not a probe
		}
		words := strings.Fields(string(bytes.TrimRight(buf[:headerSize], "\x00")))
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case wordSpoof:
			s.count(words[1])
		case wordAsk:
			clear(buf[:headerSize])
			copy(buf[:headerSize], fmt.Sprintf("%s %s %s %s", wordAnswer, words[1], s.Name, from))
			_, _, _ = c.WriteMsgUDP(buf[:n], sameAddress(info[:infoSize]), from)
		}
	}
}

// sameAddress returns the control message with which an answer has the address that was asked as its source: that of the
// request without its interface, since the way back may be another.
func sameAddress(info []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(info)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO &&
			len(m.Data) >= unix.SizeofInet4Pktinfo:
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[8:12])})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO &&
			len(m.Data) >= unix.SizeofInet6Pktinfo:
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])})
		}
	}
	return nil
}

// maxSeen bounds the cookies that are counted.
const maxSeen = 4096

func (s *Server) count(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.seen[cookie]; known || len(s.seen) < maxSeen {
		s.seen[cookie]++
	}
}
