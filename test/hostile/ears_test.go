// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// openPort is where the sockets of nodes and pods listen.
const openPort = 7000

const wordBase, wordDigits = 36, 6

// wordOf is the word that a packet bears, which distinguishes it from all others. Its 8 bytes fit into one fragment.
func wordOf(number int) []byte {
	digits := strconv.FormatInt(int64(number), wordBase)
	return fmt.Appendf(nil, "w%s%s!", strings.Repeat("0", wordDigits-len(digits)), digits)
}

// numberOf is the number in a word.
func numberOf(digits []byte) int {
	n, _ := strconv.ParseInt(string(digits), wordBase, 64)
	return int(n)
}

// ears hear words at all places: at pods every frame that comes in over an interface, at nodes what their sockets get,
// at the wire every frame.
type ears struct {
	t     testing.TB
	mu    sync.Mutex
	heard map[int]map[string]int // how often a word was heard at a place
	words *regexp.Regexp
}

func newEars(t testing.TB) *ears {
	return &ears{t: t, heard: map[int]map[string]int{}, words: regexp.MustCompile(`w([0-9a-z]{6})!`)}
}

// frames listens at all interfaces of a namespace.
func (e *ears) frames(place string, ns *netns.NS) { e.listen(place, ns, allFrames) }

// allFrames opens a socket for all frames.
func allFrames() (int, error) {
	const all = 0x0300 // ETH_P_ALL on the wire
	return unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
}

// socket listens at openPort of all addresses of a namespace, those of its loopback interface among them.
func (e *ears) socket(place string, ns *netns.NS) {
	e.listen(place, ns, func() (int, error) {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(netip.IPv6Unspecified(), openPort)))
		}
		return fd, err
	})
}

// echo answers at echoPort, with what it hears.
func (e *ears) echo(ns *netns.NS) {
	e.t.Helper()
	var c net.PacketConn
	err := ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp", fmt.Sprintf(":%d", echoPort))
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	done := make(chan struct{})
	e.t.Cleanup(func() { _ = c.Close(); <-done })
	go func() {
		defer close(done)
		for buf := make([]byte, 1<<16); ; {
			n, from, err := c.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil { // else it hears that an answer was refused
				_, _ = c.WriteTo(buf[:n], from)
			}
		}
	}()
}

// sockets listens at sockets of a node: those of programs at openPort, and raw ones, which see what the node takes for
// itself.
func (e *ears) sockets(name string, ns *netns.NS) {
	e.socket("socket:"+name, ns)
	err := ns.Do(func() error { // the kernel shakes hands for it; what was said the raw sockets hear
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", openPort))
		if err == nil {
			e.t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.raw("node:"+name, ns)
}

// raw listens at raw sockets, which see what a namespace takes for itself, and ARP.
func (e *ears) raw(place string, ns *netns.NS) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, proto := range []int{protoICMP, protoIPIP, protoTCP, protoUDP, protoSIT, protoICMPv6} {
			e.listen(place, ns, func() (int, error) { return unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto) })
		}
	}
	const arp = 0x0608 // ETH_P_ARP on the wire
	e.listen(place, ns, func() (int, error) { return unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, arp) })
}

func (e *ears) listen(place string, ns *netns.NS, open func() (int, error)) {
	e.t.Helper()
	hear(e.t, place, ns, open, func(text []byte) { e.note(place, text) })
}

// hear calls heard with all that arrives at a socket of a namespace, until the test ends.
func hear(t testing.TB, place string, ns *netns.NS, open func() (int, error), heard func([]byte)) {
	t.Helper()
	var fd int
	err := ns.Do(func() (err error) {
		if fd, err = open(); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		return unix.SetNonblock(fd, true)
	})
	if err != nil {
		t.Fatalf("listen at %s: %v", place, err)
	}
	file := os.NewFile(uintptr(fd), place)
	conn, err := file.SyscallConn()
	if err != nil {
		t.Fatalf("listen at %s: %v", place, err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = file.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			err := conn.Read(func(fd uintptr) bool {
				n, from, err := unix.Recvfrom(int(fd), buf, 0)
				l, ok := from.(*unix.SockaddrLinklayer)
				sent := ok && (l.Pkttype == unix.PACKET_OUTGOING || l.Hatype == unix.ARPHRD_LOOPBACK)
				if err == nil && !sent {
					heard(buf[:n])
				}
				return err == nil
			})
			if err != nil {
				return
			}
		}
	}()
}

func (e *ears) note(place string, text []byte) {
	for _, m := range e.words.FindAllSubmatch(text, -1) {
		number := numberOf(m[1])
		e.mu.Lock()
		if e.heard[number] == nil {
			e.heard[number] = map[string]int{}
		}
		e.heard[number][place]++
		e.mu.Unlock()
	}
}

// at reports the places of those where a word has been heard.
func (e *ears) at(number int, places ...string) (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range places {
		if e.heard[number][p] > 0 {
			out = append(out, p)
		}
	}
	return out
}

// times is how often a word has been heard at a place.
func (e *ears) times(number int, place string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard[number][place]
}
