// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// The ICMP types that are used (RFC 792, RFC 4443).
const (
	reply4, unreachable4, request4, exceeded4 = 0, 3, 8, 11
	reply6, unreachable6, tooBig6, exceeded6  = 129, 1, 2, 3
	request6                                  = 128
	fragmentationNeeded4                      = 4 // a code of unreachable4
	header4, header6, headerICMP              = 20, 40, 8
)

// waits are how long the answers to packets may take, one after another, before the next one is sent.
func (e echo) waits() []time.Duration {
	const first = 250 * time.Millisecond
	switch {
	case e.patience > 0:
		return []time.Duration{e.patience}
	case e.ttl == 1:
		// The answer is an error. Linux allows a second's worth of it for a packet without a route, and another one for any
		// ICMP error to the same address (net.ipv4.icmp_ratelimit), and what was not sent is spent, too: after more than two
		// seconds of silence there is one.
		return []time.Duration{first, 2*time.Second + first, 4 * first}
	}
	return []time.Duration{first, 2 * first, 4 * first}
}

// echo is one echo request.
type echo struct {
	ns *netns.NS
	to netip.Addr
	// size is the size of the IP packet in bytes.
	size int
	// ttl is the TTL; 0 is the kernel's default.
	ttl int
	// patience is how long the answer to the only packet may take; 0: several packets are sent.
	patience time.Duration
}

// Failures without a response.
var (
	errSilence = errors.New("no answer")
	errTooBig  = errors.New("too large for this node's own link")
)

// answer is the response to an echo request.
type answer struct {
	from netip.Addr
	// arrived reports that the packet reached the destination's node: it replied, or the TTL ended there.
	arrived bool
	// mtu is the MTU of a narrow link on the path, 0 if no router reported one.
	mtu  int
	says string
	took time.Duration // from the request to the answer
}

// ask sends an echo request until a response arrives.
func (e echo) ask(ctx context.Context) (a answer, err error) {
	c, err := e.open()
	if err != nil {
		return a, err
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	request := e.request()
	buf := make([]byte, 64<<10)
	for _, wait := range e.waits() {
		sent := time.Now()
		if _, err := c.WriteTo(request, &net.IPAddr{IP: e.to.AsSlice()}); errors.Is(err, unix.EMSGSIZE) {
			return a, errTooBig
		} else if err != nil {
			return a, plain(err)
		}
		if err := c.SetReadDeadline(sent.Add(wait)); err != nil {
			return a, err
		}
		for {
			n, sender, err := c.ReadFrom(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				continue // the socket's error is about an earlier packet
			}
			if a, ok := e.understand(buf[:n], request); ok {
				a.took = time.Since(sent)
				if ip, is := sender.(*net.IPAddr); is {
					addr, _ := netip.AddrFromSlice(ip.IP)
					a.from = addr.Unmap()
				}
				return a, nil
			}
		}
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
	}
	return a, errSilence
}

// open returns a socket that receives all ICMP of its namespace and sends with DF.
func (e echo) open() (c *net.IPConn, err error) {
	network := "ip4:icmp"
	if e.to.Is6() {
		network = "ip6:ipv6-icmp"
	}
	err = e.ns.Do(func() error {
		c, err = net.ListenIP(network, nil)
		return err
	})
	if err != nil {
		return nil, plain(err)
	}
	raw, err := c.SyscallConn()
	if err == nil {
		var set error
		err = raw.Control(func(fd uintptr) { set = e.options(int(fd)) })
		err = errors.Join(err, set)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("socket for ICMP: %w", err)
	}
	return c, nil
}

// options sets PMTUDISC_PROBE: packets have DF, and the kernel ignores the path MTU that it has learned.
func (e echo) options(fd int) error {
	if e.to.Is6() {
		err := errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
		if e.ttl > 0 {
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, e.ttl))
		}
		return err
	}
	err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	if e.ttl > 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, e.ttl))
	}
	return err
}

func (e echo) header() int {
	if e.to.Is6() {
		return header6
	}
	return header4
}

// request returns an echo request with a random identifier and sequence number, which match responses to it.
func (e echo) request() []byte {
	m := make([]byte, max(e.size-e.header(), headerICMP))
	_, _ = rand.Read(m[4:8]) // never fails (crypto/rand)
	if e.to.Is6() {
		m[0] = request6 // the kernel fills in the checksum
		return m
	}
	m[0] = request4
	binary.BigEndian.PutUint16(m[2:], sum(m))
	return m
}

// understand parses a packet; it reports whether it is a response to this request.
func (e echo) understand(b, request []byte) (answer, bool) {
	if len(b) < headerICMP {
		return answer{}, false
	}
	kind, code := int(b[0]), int(b[1])
	if !e.to.Is6() && kind == reply4 || e.to.Is6() && kind == reply6 {
		return answer{arrived: true, says: "answers"}, string(b[4:8]) == string(request[4:8])
	}
	quoted := b[headerICMP:]
	size := header6
	if !e.to.Is6() && len(quoted) > 0 {
		size = int(quoted[0]&0xf) * 4
	}
	if len(quoted) < size+headerICMP || quoted[size] != request[0] ||
		string(quoted[size+4:size+8]) != string(request[4:8]) {
		return answer{}, false
	}
	switch {
	case !e.to.Is6() && kind == unreachable4 && code == fragmentationNeeded4:
		return answer{mtu: int(binary.BigEndian.Uint16(b[6:])), says: "is too narrow"}, true
	case e.to.Is6() && kind == tooBig6:
		return answer{mtu: int(binary.BigEndian.Uint32(b[4:])), says: "is too narrow"}, true
	case !e.to.Is6() && kind == exceeded4, e.to.Is6() && kind == exceeded6:
		return answer{arrived: e.ttl == 1, says: "reports that the TTL expired"}, true
	case !e.to.Is6() && kind == unreachable4, e.to.Is6() && kind == unreachable6:
		return answer{says: "reports that it is unreachable"}, true
	}
	return answer{}, false
}

// sum returns the Internet checksum.
func sum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		if i+1 < len(b) {
			s += uint32(binary.BigEndian.Uint16(b[i:]))
		} else {
			s += uint32(b[i]) << 8
		}
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return ^uint16(s)
}

// plain returns the system's error without its context.
func plain(err error) error {
	var errno unix.Errno
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("not permitted: run it as root: %w", err)
	case errors.As(err, &errno):
		return errno
	}
	return err
}
