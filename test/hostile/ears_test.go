// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// openPort is where the sockets of nodes and pods listen.
const openPort = 7000

// wordOf is the word that a packet bears, which tells it from all others. Its 8 bytes fit into one fragment.
func wordOf(number int) []byte { return fmt.Appendf(nil, "w%06d!", number) }

// ears hear words at all places: at pods every frame that comes in over an interface, at nodes what their sockets get,
// at the wire every frame.
type ears struct {
	t     testing.TB
	mu    sync.Mutex
	heard map[int]map[string]int // how often a word was heard at a place
	words *regexp.Regexp
}

func newEars(t testing.TB) *ears {
	return &ears{t: t, heard: map[int]map[string]int{}, words: regexp.MustCompile(`w(\d{6})!`)}
}

// frames listens at all interfaces of a namespace.
func (e *ears) frames(place string, ns *netns.NS) {
	const all = 0x0300 // ETH_P_ALL on the wire
	e.listen(place, ns, func() (int, error) {
		return unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	})
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

// raw listens at raw sockets, which see what a namespace takes for itself.
func (e *ears) raw(place string, ns *netns.NS) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, proto := range []int{protoICMP, protoIPIP, protoTCP, protoUDP, protoSIT, protoICMPv6} {
			e.listen(place, ns, func() (int, error) { return unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto) })
		}
	}
}

func (e *ears) listen(place string, ns *netns.NS, open func() (int, error)) {
	e.t.Helper()
	var fd int
	err := ns.Do(func() (err error) {
		if fd, err = open(); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		return unix.SetNonblock(fd, true)
	})
	if err != nil {
		e.t.Fatalf("listen at %s: %v", place, err)
	}
	file := os.NewFile(uintptr(fd), place)
	conn, err := file.SyscallConn()
	if err != nil {
		e.t.Fatalf("listen at %s: %v", place, err)
	}
	done := make(chan struct{})
	e.t.Cleanup(func() { _ = file.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			err := conn.Read(func(fd uintptr) bool {
				n, from, err := unix.Recvfrom(int(fd), buf, 0)
				l, ok := from.(*unix.SockaddrLinklayer)
				sent := ok && (l.Pkttype == unix.PACKET_OUTGOING || l.Hatype == unix.ARPHRD_LOOPBACK)
				if err == nil && !sent {
					e.note(place, buf[:n])
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
		number, _ := strconv.Atoi(string(m[1]))
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
