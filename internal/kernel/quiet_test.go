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

// ears count what the kernel tells of changes in a namespace, in every group there is for them.
type ears struct{ f *os.File }

func listen(t *testing.T, ns *netns.NS) ears {
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
	return ears{f}
}

// heard is the types of the messages until it was quiet for d.
func (e ears) heard(t *testing.T, d time.Duration) []uint16 {
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

// TestSecondApplyIsUnheard is the kernel's own word that a second Apply writes nothing: nobody is notified of anything.
func TestSecondApplyIsUnheard(t *testing.T) {
	s := pair(t)
	host, pod := listen(t, s.Host.ns), listen(t, s.Pod.ns)
	for name, f := range canned() {
		if err := s.Apply(t.Context(), f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		first := len(host.heard(t, 120*time.Millisecond)) + len(pod.heard(t, 120*time.Millisecond))
		if first == 0 && name != "nothing" && name != "lo" {
			t.Errorf("%s: the first Apply was not heard, so this test proves nothing", name)
		}
		if err := s.Apply(t.Context(), f); err != nil {
			t.Fatalf("%s: again: %v", name, err)
		}
		if again := append(host.heard(t, 50*time.Millisecond), pod.heard(t, 50*time.Millisecond)...); len(again) > 0 {
			t.Errorf("%s: the second Apply was heard: messages of types %v", name, again)
		}
		if err := s.Remove(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveShared(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		host.heard(t, 50*time.Millisecond)
		pod.heard(t, 50*time.Millisecond)
	}
}

// TestRequestsOfAnADD keeps the number of requests small, so that nobody adds one unawares.
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
