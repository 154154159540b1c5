// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// wire captures frames that arrive on a link.
type wire struct {
	t  *testing.T
	fd int
	// sentinels counts the frames that were sent after others.
	sentinels uint32
}

const sentinel = 0x88b5

func sniff(t *testing.T, ns *netns.NS, name string) *wire {
	t.Helper()
	w := &wire{t: t}
	err := ns.Do(func() (err error) {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		return unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(w.fd) })
	tv := unix.NsecToTimeval(int64(10 * time.Second))
	if err := unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	return w
}

// passes sends a frame into the tap, followed by one that always passes, and reports whether the first one passed.
func (w *wire) passes(tap *os.File, frame []byte) (out bool) {
	w.t.Helper()
	w.sentinels++
	last := ethernet(sentinel, binary.BigEndian.AppendUint32(nil, w.sentinels), make([]byte, 46))
	for _, f := range [][]byte{frame, last} {
		if _, err := tap.Write(f); err != nil {
			w.t.Fatal(err)
		}
	}
	buf := make([]byte, 2000)
	for {
		n, _, err := unix.Recvfrom(w.fd, buf, 0)
		switch {
		case err != nil:
			w.t.Fatalf("what was sent behind a frame does not arrive: %v", err)
		case bytes.Equal(buf[:n], last):
			return out
		case bytes.Equal(buf[:n], frame):
			out = true
		}
	}
}

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if err := unix.Send(w.fd, frame, 0); err != nil {
		w.t.Fatal(err)
	}
}

// made lists what joins created in the pod: eBPF programs, filters, tables.
func made(t *testing.T, s Spaces) string {
	t.Helper()
	links, err := s.Pod.reader.LinksByName(t.Context(), []string{"tap0", "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range []string{"tap0", "eth0"} {
		program := ""
		if l, ok := links[name]; ok {
			if program, err = redirect.Attached(s.PodNS, l.Index); err != nil {
				t.Fatal(err)
			}
			program += nettest.Run(t, s.PodNS, "tc", "filter", "show", "dev", name, "ingress")
		}
		out = append(out, program)
	}
	return strings.Join(append(out, nettest.Run(t, s.PodNS, "nft", "list", "ruleset"), ""), "\n")
}
