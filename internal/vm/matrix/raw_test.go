// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// raw is a packet socket on a link.
type raw struct {
	t  *testing.T
	fd int
	at *unix.SockaddrLinklayer
}

func openRaw(t *testing.T, ns *netns.NS, link string) *raw {
	t.Helper()
	r := &raw{t: t}
	err := ns.Do(func() (err error) {
		const all = 0x0300 // ETH_P_ALL on the wire
		if r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		index, err := netInterface(link)
		if err != nil {
			return err
		}
		r.at = &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}
		limit := unix.NsecToTimeval(int64(200 * time.Millisecond))
		return unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	})
	if err == nil {
		err = unix.Bind(r.fd, r.at)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(r.fd) })
	return r
}

func netInterface(link string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(link)
	if err != nil {
		return 0, err
	}
	err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	return int(ifr.Uint32()), err
}

func (r *raw) send(frame []byte) {
	r.t.Helper()
	if err := unix.Sendto(r.fd, frame, 0, r.at); err != nil {
		r.t.Fatalf("send %x: %v", frame, err)
	}
}

// received returns the markers in the frames until the one with the last marker.
func (r *raw) received(last string, again func(), words ...string) map[string]bool {
	r.t.Helper()
	out := map[string]bool{}
	r.each(last, again, func(frame []byte) {
		for _, w := range words {
			if bytes.Contains(frame, []byte(w)) {
				out[w] = true
			}
		}
	})
	return out
}

// each calls f with each frame until the one with the last marker. It calls again when no frame has arrived for a while.
func (r *raw) each(last string, again func(), f func(frame []byte)) {
	r.t.Helper()
	buf := make([]byte, 1<<16)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		n, from, err := unix.Recvfrom(r.fd, buf, 0)
		if err == unix.EAGAIN || err == unix.EINTR {
			again()
			continue
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		f(buf[:n])
		if bytes.Contains(buf[:n], []byte(last)) {
			return
		}
	}
	r.t.Fatalf("%q was never received", last)
}
