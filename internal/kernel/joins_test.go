// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/join"
	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// joining returns a pod as ptp plans it, with a tap that is joined to eth0.
func joining(how state.JoinMethod) (pod, guest state.Fragment) {
	pod = ptp(1)
	guest.Owner = "weft:vm/x"
	guest.Pod.Links = []state.Link{
		{Name: "tap0", Kind: state.Tap, MAC: state.MAC{2, 1, 1, 1, 1, 1}, Up: state.On(), Alias: guest.Owner},
	}
	guest.Pod.Joins = []state.Join{{
		Tap: "tap0", Link: "eth0", Method: how, LocalAddrs: []netip.Addr{addr("169.254.75.10"), addr("fe80::1")},
		ProxySubnet: prefix("10.1.0.0/17"), GuestAddr: addr("10.1.0.1"),
		DHCP4: true, DHCP6: true, RS: true,
	}}
	return pod, guest
}

// withJoin starts a test of one method, and skips it when this kernel or this user does not support it.
func withJoin(t *testing.T, how state.JoinMethod) (s Spaces, guest state.Fragment) {
	t.Helper()
	nettest.Need(t, "tap")
	s = pair(t)
	pod, guest := joining(how)
	mustApply(t, s, pod)
	err := s.Apply(t.Context(), guest)
	if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		nettest.SkipMissing(t, fmt.Sprintf("links cannot be joined by %s here: %v", how, err))
	}
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, guest)
	return s, guest
}

// ways runs a test for each method.
func ways(t *testing.T, f func(t *testing.T, how state.JoinMethod)) {
	for _, how := range state.JoinMethods() {
		t.Run(string(how), func(t *testing.T) { f(t, how) })
	}
}

func ethernet(kind uint16, parts ...[]byte) []byte {
	frame := append([]byte{2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}, byte(kind>>8), byte(kind))
	return append(frame, bytes.Join(parts, nil)...)
}

func arpFrame(op byte, target string) []byte {
	return ethernet(unix.ETH_P_ARP, []byte{0, 1, 8, 0, 6, 4, 0, op, 2, 2, 2, 2, 2, 2, 10, 1, 0, 1, 0, 0, 0, 0, 0, 0},
		addr(target).AsSlice())
}

func udp4(dst string, port uint16, change ...func(header []byte)) []byte {
	h := []byte{0x45, 0, 0, 36, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 1, 0, 1}
	h = append(h, addr(dst).AsSlice()...)
	for _, c := range change {
		c(h)
	}
	return ethernet(unix.ETH_P_IP, h, []byte{0, 68, byte(port >> 8), byte(port), 0, 16, 0, 0}, make([]byte, 8))
}

func packet6(next byte, dst string, payload ...byte) []byte {
	h := []byte{0x60, 0, 0, 0, 0, byte(len(payload)), next, 255}
	return ethernet(unix.ETH_P_IPV6, h, addr("fe80::7").AsSlice(), addr(dst).AsSlice(), payload)
}

func solicitation(target string) []byte {
	return append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, addr(target).AsSlice()...)
}

func udp6(port uint16) []byte {
	return append([]byte{2, 34, byte(port >> 8), byte(port), 0, 16, 0, 0}, make([]byte, 8)...)
}

// TestJoinKeeps: frames that the tap's side answers stay there, all others leave over the link.
func TestJoinKeeps(t *testing.T) {
	ways(t, func(t *testing.T, how state.JoinMethod) {
		s, _ := withJoin(t, how)
		tap := nettest.OpenTap(t, s.PodNS, "tap0", false)
		wire := sniff(t, s.Host.ns, "veth0001")
		for name, c := range map[string]struct {
			frame []byte
			kept  bool
		}{
			"arp for the server":       {arpFrame(1, "169.254.75.10"), true},
			"arp answer":               {arpFrame(2, "169.254.75.10"), false},
			"arp in the subnet":        {arpFrame(1, "10.1.7.7"), true},
			"arp for the guest":        {arpFrame(1, "10.1.0.1"), false},
			"arp for anybody":          {arpFrame(1, "10.1.255.1"), false},
			"dhcp":                     {udp4("255.255.255.255", 67), true},
			"dhcp to the server":       {udp4("169.254.75.10", 67), true},
			"not dhcp to the server":   {udp4("169.254.75.10", 53), false},
			"tcp to the server":        {udp4("169.254.75.10", 67, func(h []byte) { h[9] = unix.IPPROTO_TCP }), false},
			"udp to the router":        {packet6(17, "fe80::1", udp6(53)...), false},
			"tcp to the router":        {packet6(6, "fe80::1", make([]byte, 20)...), false},
			"dhcpv6 to the router":     {packet6(17, "fe80::1", udp6(547)...), true},
			"dhcp to another":          {udp4("10.1.255.1", 67), false},
			"not dhcp":                 {udp4("255.255.255.255", 68), false},
			"not udp":                  {udp4("255.255.255.255", 67, func(h []byte) { h[9] = unix.IPPROTO_TCP }), false},
			"a later fragment":         {udp4("255.255.255.255", 67, func(h []byte) { h[7] = 2 }), false},
			"udp":                      {udp4("10.1.255.1", 53), false},
			"short":                    {ethernet(unix.ETH_P_IP, []byte{0x45}), false},
			"another protocol":         {ethernet(0x88b6, make([]byte, 46)), false},
			"router solicitation":      {packet6(58, "ff02::2", 133, 0, 0, 0, 0, 0, 0, 0), true},
			"router advertisement":     {packet6(58, "ff02::1", 134, 0, 0, 0, 0, 0, 0, 0), false},
			"who has the router":       {packet6(58, "ff02::1:ff00:1", solicitation("fe80::1")...), true},
			"who has another":          {packet6(58, "ff02::1:ff00:1", solicitation("fd00:1::1")...), false},
			"to the router":            {packet6(58, "fe80::1", 136, 0, 0, 0, 0, 0, 0, 0), true},
			"dhcpv6":                   {packet6(17, "ff02::1:2", udp6(547)...), true},
			"dhcpv6 to somebody":       {packet6(17, "fd00:1::1", udp6(547)...), false},
			"udp by multicast of IPv6": {packet6(17, "ff02::1:2", udp6(5353)...), false},
		} {
			if name == "a later fragment" && how == state.JoinForward {
				continue // nft reads a port at its usual place even where there is none
			}
			if out := wire.passes(tap, c.frame); out == c.kept {
				t.Errorf("%s: it went out: %t", name, out)
			}
		}
	})
}

// TestJoinBrings: arriving frames go to the guest, never to the pod's own IP stack.
func TestJoinBrings(t *testing.T) {
	ways(t, func(t *testing.T, how state.JoinMethod) {
		s, _ := withJoin(t, how)
		tap := nettest.OpenTap(t, s.PodNS, "tap0", false)
		wire := sniff(t, s.Host.ns, "veth0001")
		want := ethernet(0x88b6, []byte("to the guest"), make([]byte, 40))
		got := make([]byte, 2000)
		// A newly opened tap accepts no frames until a worker of the kernel has run.
		for end, arrived := time.Now().Add(time.Minute), false; !arrived; {
			wire.send(want)
			_ = tap.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			for {
				n, err := tap.Read(got)
				if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end)) {
					t.Fatal(err)
				}
				if arrived = err == nil && bytes.Equal(got[:n], want); arrived || err != nil {
					break
				}
			}
		}
		if out, err := nettest.Try(s.Host.ns, "ping", "-c1", "-W1", "10.1.0.1"); err == nil {
			t.Errorf("the pod answers itself:\n%s", out)
		}
	})
}

// TestJoinStays: a second pass writes nothing, a removed part is reported and restored, another method leaves nothing
// of the previous one, and finally the pod is as it was before.
func TestJoinStays(t *testing.T) {
	externalChanges := map[state.JoinMethod]func(t *testing.T, s Spaces) error{
		state.JoinPeer: func(t *testing.T, s Spaces) error {
			_, err := nettest.Try(s.PodNS, "tc", "filter", "del", "dev", "tap0", "ingress")
			return err
		},
		state.JoinRedirect: func(t *testing.T, s Spaces) error {
			_, err := nettest.Try(s.PodNS, "tc", "filter", "del", "dev", "eth0", "ingress")
			return err
		},
		state.JoinForward: func(t *testing.T, s Spaces) error {
			_, err := nettest.Try(s.PodNS, "nft", "flush", "ruleset")
			return err
		},
		state.JoinMirred: func(t *testing.T, s Spaces) error {
			_, err := nettest.Try(s.PodNS, "tc", "filter", "del", "dev", "tap0", "ingress", "prio", "30565")
			return err
		},
	}
	ways(t, func(t *testing.T, how state.JoinMethod) {
		s, guest := withJoin(t, how)
		before := made(t, s)
		mustApply(t, s, guest)
		if after := made(t, s); after != before {
			t.Errorf("a second pass made\n%s\nof\n%s", after, before)
		}
		if err := externalChanges[how](t, s); err != nil {
			t.Fatal(err)
		}
		d, err := s.Diff(t.Context(), guest)
		if err != nil || len(d) != 1 || !strings.Contains(d[0].Want, "join tap0 eth0") {
			t.Errorf("the difference is %v (%v)", d, err)
		}
		mustApply(t, s, guest)
		guest.Pod.Joins[0].Method = state.JoinMirred
		if how == state.JoinMirred {
			guest.Pod.Joins[0].Method = state.JoinForward
		}
		mustApply(t, s, guest)
		if err := s.Remove(t.Context(), guest); err != nil {
			t.Fatal(err)
		}
		if left := made(t, s); left != "\n\n\n" {
			t.Errorf("left of the join: %q", left)
		}
		nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "10.1.255.1")
	})
}

// TestJoinKeepsLimits: a link with a qdisc is joined by a method that does not bypass the qdisc, also when it is added
// later.
func TestJoinKeepsLimits(t *testing.T) {
	s, guest := withJoin(t, state.JoinPeer)
	nettest.Run(t, s.PodNS, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7766:", "tbf", "rate", "8mbit",
		"burst", "20000", "limit", "20000")
	guest.Pod.Joins[0].Method = ""
	if d, err := s.Diff(t.Context(), guest); err != nil || len(d) != 1 || !strings.Contains(d[0].Want, "join tap0 eth0") {
		t.Errorf("packets pass by a queue that came later, and the difference is %v (%v)", d, err)
	}
	mustApply(t, s, guest)
	wantSame(t, s, guest)
	peer := guest
	peer.Pod.Joins = slices.Clone(guest.Pod.Joins)
	peer.Pod.Joins[0].Method = state.JoinPeer
	if err := s.Apply(t.Context(), peer); err == nil ||
		!strings.Contains(err.Error(), "packets redirected to the other end of link eth0 bypass its qdisc") {
		t.Errorf("joined past the queue: %v", err)
	}
}

// TestJoinChooses: without a wanted method one is found, also for a user who may not load eBPF.
func TestJoinChooses(t *testing.T) {
	s, guest := withJoin(t, "")
	if err := s.Remove(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "10.1.255.1")
}

// TestJoinByTCX: when the kernel has no eBPF filters, tcx runs the programs: that is equivalent, and ends with the
// join.
func TestJoinByTCX(t *testing.T) {
	s, guest := withJoin(t, state.JoinPeer)
	links, err := s.Pod.reader.LinksByName(t.Context(), []string{"tap0", "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	w := join.Way{
		In:   join.Namespace{NS: s.PodNS, Reader: s.Pod.reader, Socket: s.Pod.rtnl, Filters: s.Pod.Filters, Programs: redirect.Joins{}},
		Join: guest.Pod.Joins[0], How: state.JoinPeer, Tap: links["tap0"], Link: links["eth0"],
	}
	tap, back, err := redirect.Joins{}.Of(w)
	if err := errors.Join(err, w.EndAll(t.Context())); err != nil {
		t.Fatal(err)
	}
	for index, p := range map[int]redirect.Program{w.Tap.Index: tap, w.Link.Index: back} {
		l, err := redirect.Load(p)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := redirect.Attach(s.PodNS, index, l); errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
			nettest.SkipMissing(t, fmt.Sprintf("no tcx in this kernel: %v", err))
		} else if err != nil {
			t.Fatal(err)
		}
	}
	wantSame(t, s, guest)
	if err := s.Remove(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	if name, err := redirect.Attached(s.PodNS, w.Link.Index); name != "" || err != nil {
		t.Errorf("%q is left (%v)", name, err)
	}
	nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "10.1.255.1")
}

// TestJoinWithForeignFilter: when another program uses the link's filter position, tcx runs the programs, and the other
// program's filter stays.
func TestJoinWithForeignFilter(t *testing.T) {
	s, guest := withJoin(t, state.JoinPeer)
	if err := s.Remove(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, s.PodNS, "tc", "qdisc", "add", "dev", "eth0", "clsact")
	err := s.Apply(t.Context(), guest)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		nettest.SkipMissing(t, fmt.Sprintf("no tcx in this kernel: %v", err))
	} else if err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, guest)
	before := made(t, s)
	mustApply(t, s, guest)
	if after := made(t, s); after != before {
		t.Errorf("a second pass made\n%s\nof\n%s", after, before)
	}
	links, err := s.Pod.reader.LinksByName(t.Context(), []string{"eth0"})
	if err != nil {
		t.Fatal(err)
	}
	if name, err := redirect.Attached(s.PodNS, links["eth0"].Index); name == "" || err != nil {
		t.Errorf("tcx runs nothing (%v)", err)
	}
	if err := s.Remove(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	if out := nettest.Run(t, s.PodNS, "tc", "qdisc", "show", "dev", "eth0"); !strings.Contains(out, "clsact") {
		t.Errorf("somebody's has gone:\n%s", out)
	}
	if name, err := redirect.Attached(s.PodNS, links["eth0"].Index); name != "" || err != nil {
		t.Errorf("%q is left (%v)", name, err)
	}
	nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "10.1.255.1")
}
