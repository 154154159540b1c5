// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Relay plays a virtual machine's network card: it opens a tap that is there, as a hypervisor does, and carries its
// frames to and from a tap of its own, eth0 in the guest's namespace, with the guest's address. It ends with the test.
func Relay(t testing.TB, pod *netns.NS, tap string, queues bool, guest *netns.NS, mac string) {
	t.Helper()
	own, theirs := OpenTap(t, guest, "eth0", false), OpenTap(t, pod, tap, queues)
	Run(t, guest, "ip", "link", "set", "eth0", "address", mac, "up")
	Carry(t, own, theirs)
}

// Carry carries frames between two open taps, until the test ends.
func Carry(t testing.TB, own, theirs *os.File) {
	done := make(chan struct{}, 2)
	for _, way := range [][2]*os.File{{own, theirs}, {theirs, own}} {
		go func() {
			defer func() { done <- struct{}{} }()
			frame := make([]byte, 1<<16)
			for {
				n, err := way[0].Read(frame)
				if err != nil {
					return
				}
				_, _ = way[1].Write(frame[:n]) // a link that is down takes none
			}
		}()
	}
	t.Cleanup(func() {
		_, _ = own.Close(), theirs.Close()
		<-done
		<-done
	})
}

// OpenTap opens a tap in a namespace, and makes it where it is not there. It can be read by many and closed at any
// time.
func OpenTap(t testing.TB, ns *netns.NS, name string, queues bool) *os.File {
	t.Helper()
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if queues {
		flags |= unix.IFF_MULTI_QUEUE
	}
	var file *os.File
	err := ns.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifr.SetUint16(flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			_ = unix.Close(fd)
			return err
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	})
	if err != nil {
		t.Fatalf("open tap %s: %v", name, err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}
