// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// notifications counts the kernel's notifications about changes in a namespace, in every group.
type notifications struct{ f *os.File }

func listen(t *testing.T, ns *netns.NS) notifications {
	t.Helper()
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	groups := uint32(0)
	for _, g := range []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	} {
		groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "ears")
	t.Cleanup(func() { _ = f.Close() })
	return notifications{f}
}

// received returns the types of the messages, until none has arrived for d.
func (e notifications) received(t *testing.T, d time.Duration) []uint16 {
	t.Helper()
	var out []uint16
	buf := make([]byte, 64<<10)
	for {
		_ = e.f.SetReadDeadline(time.Now().Add(d))
		n, err := e.f.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if n >= 6 {
			out = append(out, uint16(buf[4])|uint16(buf[5])<<8)
		}
	}
}

// TestSecondApplyIsUnheard: the kernel itself shows that a second Apply writes nothing, because it sends no
// notification.
func TestSecondApplyIsUnheard(t *testing.T) {
	s := pair(t)
	host, pod := listen(t, s.Host.ns), listen(t, s.Pod.ns)
	for name, f := range canned() {
		if err := s.Apply(t.Context(), f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		first := len(host.received(t, 120*time.Millisecond)) + len(pod.received(t, 120*time.Millisecond))
		if first == 0 && name != "nothing" && name != "lo" {
			t.Errorf("%s: the first Apply was not heard, so this test proves nothing", name)
		}
		// The kernel sends notifications itself, too, for example when an address is no longer tentative: those are not
		// heard each time.
		var again []uint16
		for range 5 {
			if err := s.Apply(t.Context(), f); err != nil {
				t.Fatalf("%s: again: %v", name, err)
			}
			again = append(host.received(t, 50*time.Millisecond), pod.received(t, 50*time.Millisecond)...)
			if len(again) == 0 {
				break
			}
		}
		if len(again) > 0 {
			t.Errorf("%s: the second Apply was heard: messages of types %v", name, again)
		}
		if err := s.Remove(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveShared(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		host.received(t, 50*time.Millisecond)
		pod.received(t, 50*time.Millisecond)
	}
}

// TestRequestsOfAnADD bounds the number of requests, so that a change does not add one unnoticed.
func TestRequestsOfAnADD(t *testing.T) {
	for name, test := range map[string]struct {
		plan func(int) state.Fragment
		most int
	}{"ptp": {ptp, 22}, "bridge": {port, 16}} {
		s := pair(t)
		mustApply(t, s, test.plan(1))
		p := pair(t)
		second := Spaces{Host: s.Host, Pod: p.Pod, PodNS: p.PodNS}
		before := s.Host.Writes() + p.Pod.Writes()
		if err := second.Apply(t.Context(), test.plan(2)); err != nil {
			t.Fatal(err)
		}
		if n := s.Host.Writes() + p.Pod.Writes() - before; n > test.most {
			t.Errorf("%s: an ADD is %d requests, want at most %d", name, n, test.most)
		} else {
			t.Logf("%s: an ADD is %d requests", name, n)
		}
	}
}
