// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Relay acts as the network card of a VM: it opens an existing tap, as a hypervisor does, and forwards frames between
// it and a tap of its own, eth0 in the guest's namespace, with the guest's MAC address. It ends with the test.
func Relay(t testing.TB, pod *netns.NS, tap string, queues bool, guest *netns.NS, mac string) {
	t.Helper()
	own, theirs := OpenTap(t, guest, "eth0", false), OpenTap(t, pod, tap, queues)
	Run(t, guest, "ip", "link", "set", "eth0", "address", mac, "up")
	ForwardFrames(t, own, theirs)
}

// ForwardFrames forwards frames between two open taps, until the test ends.
func ForwardFrames(t testing.TB, own, theirs *os.File) {
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
				_, _ = way[1].Write(frame[:n]) // a link that is down accepts none
			}
		}()
	}
	t.Cleanup(func() {
		_, _ = own.Close(), theirs.Close()
		<-done
		<-done
	})
}

// OpenTap opens a tap in a namespace, and creates it if it does not exist. Several goroutines may read it, and it may
// be closed at any time.
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
