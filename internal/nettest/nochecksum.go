// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"errors"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// NoChecksumWire connects two namespaces, eth0 in both, by a wire with a defect of some network cards: it forwards
// frames unchanged, without computing the checksums that the kernel has left to the device.
func NoChecksumWire(t testing.TB, a, b *netns.NS) {
	t.Helper()
	mid := NS(t, "mid")
	var wires [2]int
	for i, ns := range []*netns.NS{a, b} {
		name := []string{"left", "right"}[i]
		Run(t, ns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", mid.Path())
		Run(t, ns, "ip", "link", "set", "eth0", "up")
		Run(t, mid, "ip", "link", "set", name, "addrgenmode", "none")
		Run(t, mid, "ip", "link", "set", name, "up", "promisc", "on")
		fd, err := rawSocket(mid, name)
		if err != nil {
			t.Fatalf("wire %s: %v", name, err)
		}
		wires[i] = fd
	}
	stop := make(chan struct{})
	var both sync.WaitGroup
	for i := range wires {
		both.Go(func() { forwardUntil(stop, wires[i], wires[1-i]) })
	}
	t.Cleanup(func() {
		close(stop)
		both.Wait()
		for _, fd := range wires {
			_ = unix.Close(fd)
		}
	})
}

// rawSocket opens a socket for all frames of a link.
func rawSocket(ns *netns.NS, link string) (fd int, err error) {
	err = ns.Do(func() error {
		ifi, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network byte order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all)); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index})
	})
	return fd, err
}

// forwardUntil forwards frames from one end to the other, until stop.
func forwardUntil(stop <-chan struct{}, from, to int) {
	buf := make([]byte, 65536)
	for {
		select {
		case <-stop:
			return
		default:
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(from), Events: unix.POLLIN}}, 50); err != nil &&
			!errors.Is(err, unix.EINTR) {
			return
		}
		n, sender, err := unix.Recvfrom(from, buf, 0)
		if err != nil {
			continue
		}
		if l, ok := sender.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
			continue // a frame that the other direction has sent
		}
		_ = unix.Sendto(to, buf[:n], 0, nil)
	}
}
