// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// device makes a link in the node's namespace that acts as a network card, with addresses and a route, and returns the
// fragment that moves it and its pre-image.
func device(t *testing.T, s Spaces) (moved, before state.Fragment) {
	t.Helper()
	for _, argv := range []string{
		"link add ens5 address 02:00:00:00:00:05 mtu 1450 txqueuelen 77 type veth peer name wire", "link set wire up",
		"link set ens5 up",
		"link set ens5 alias card", "addr add 192.0.2.5/24 dev ens5", "addr add 2001:db8::5/64 dev ens5 nodad",
		"route add 198.51.100.0/24 via 192.0.2.1 dev ens5 proto static",
	} {
		nettest.IP(t, s.Host.ns, argv)
	}
	moved = state.Fragment{Owner: "moved"}
	moved.Pod.Links = []state.Link{{
		Name: "eth0", MovedFrom: &state.Origin{Space: state.Host, Name: "ens5"}, Alias: "ens5", MTU: 1400,
		MAC: state.MAC{2, 0, 0, 0, 0, 9}, Up: state.On(),
	}}
	moved.Pod.Addrs = []state.Addr{
		{Link: "eth0", Prefix: prefix("10.0.0.5/24")}, {Link: "eth0", Prefix: prefix("fd00::5/64"), NoDAD: true},
	}
	moved.Pod.Routes = []state.Route{{Dst: prefix("0.0.0.0/0"), Gw: addr("10.0.0.1"), Link: "eth0"}}
	moved.Pod.Sysctls = []state.Sysctl{{Name: "net/ipv4/conf/eth0/arp_notify", Value: "1"}}
	before = state.Fragment{Owner: "before"}
	before.Host.Links = []state.Link{
		{Name: "ens5", MTU: 1450, MAC: state.MAC{2, 0, 0, 0, 0, 5}, Up: state.On(), Alias: "card"},
	}
	before.Host.Addrs = []state.Addr{
		{Link: "ens5", Prefix: prefix("192.0.2.5/24")}, {Link: "ens5", Prefix: prefix("2001:db8::5/64"), NoDAD: true},
	}
	before.Host.Routes = []state.Route{{Dst: prefix("198.51.100.0/24"), Gw: addr("192.0.2.1"), Link: "ens5", Protocol: 4}}
	before.Host.Sysctls = []state.Sysctl{{Name: "net/ipv4/conf/ens5/arp_notify", Value: "0"}}
	return moved, before
}

func TestMovedAndBack(t *testing.T) {
	testMoveBack(t, device, func(t *testing.T, s Spaces, taken bool) {
		ns, name := s.PodNS, "eth0"
		if taken {
			ns, name = s.Host.ns, "ens5"
		}
		if out, err := nettest.Try(ns, "ip", "link", "show", name); err == nil {
			t.Errorf("it is still there: %s", out)
		}
	})
}

// A killed Apply leaves the link marked and not moved.
func TestMarkedAndNotMoved(t *testing.T) {
	s := pair(t)
	moved, before := device(t, s)
	nettest.Run(t, s.Host.ns, "ip", "link", "set", "ens5", "alias", "ens5")
	if err := errors.Join(s.Remove(t.Context(), moved), s.Restore(t.Context(), before)); err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, before)
	before.Host.Links[0].Alias = ""
	nettest.Run(t, s.Host.ns, "ip", "link", "set", "ens5", "alias", "ens5")
	if err := errors.Join(s.Remove(t.Context(), moved), s.Restore(t.Context(), before)); err != nil {
		t.Fatal(err)
	}
	if out := nettest.Run(t, s.Host.ns, "ip", "link", "show", "ens5"); strings.Contains(out, "alias") {
		t.Errorf("the mark is left: %s", out)
	}
}

// When a namespace is deleted the kernel moves physical devices back, under another name if theirs is in use.
func TestFallenBack(t *testing.T) {
	s := pair(t)
	moved, before := device(t, s)
	nettest.Run(t, s.Host.ns, "ip", "link", "set", "ens5", "down")
	nettest.Run(t, s.Host.ns, "ip", "link", "set", "ens5", "alias", "ens5", "name", "dev7", "mtu", "1400")
	gone := Spaces{Host: s.Host}
	for range 2 {
		if err := errors.Join(gone.Release(t.Context(), moved), gone.Restore(t.Context(), before)); err != nil {
			t.Fatal(err)
		}
		wantSame(t, s, before)
	}
}

// The kernel does so a while after the namespace was deleted.
func TestFallsBackLater(t *testing.T) {
	s := pair(t)
	moved, before := device(t, s)
	moved.Pod.Links[0].MovedFrom.Hardware = true
	for _, argv := range []string{"ip link set ens5 down", "ip link set ens5 name away", "ip addr flush dev away"} {
		nettest.Run(t, s.Host.ns, strings.Fields(argv)...)
	}
	fell := make(chan error)
	go func() {
		time.Sleep(200 * time.Millisecond)
		_, err := nettest.Try(s.Host.ns, "ip", "link", "set", "away", "alias", "ens5")
		fell <- err
	}()
	gone := Spaces{Host: s.Host}
	if err := errors.Join(gone.Release(t.Context(), moved), gone.Restore(t.Context(), before), <-fell); err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, before)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	nettest.Run(t, s.Host.ns, "ip", "link", "del", "ens5")
	if err := gone.Remove(short, moved); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of one that never comes: %v", err)
	}
}

// The node's network manager may have restored a route already, or removed its gateway.
func TestMovedBackPartly(t *testing.T) {
	s := pair(t)
	moved, before := device(t, s)
	mustApply(t, s, moved)
	if err := s.Remove(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	for _, argv := range []string{
		"ip link set ens5 up", "ip addr add 192.0.2.5/24 dev ens5",
		"ip route add 198.51.100.0/24 via 192.0.2.9 dev ens5 proto dhcp",
	} {
		nettest.Run(t, s.Host.ns, strings.Fields(argv)...)
	}
	before.Host.Routes = append(before.Host.Routes, state.Route{
		Dst: prefix("203.0.113.0/24"), Gw: addr("172.31.0.1"), Link: "ens5",
	},
		state.Route{Dst: prefix("10.9.0.0/24"), Gw: addr("192.0.2.7"), Link: "ens5"})
	if err := s.Restore(t.Context(), before); err != nil {
		t.Error(err)
	}
	before.Host.Routes = before.Host.Routes[2:]
	wantSame(t, s, before)
}

// A virtual link is deleted with its namespace: nothing can be moved back, and that is no error.
func TestDiedAway(t *testing.T) {
	s := pair(t)
	moved, before := device(t, s)
	mustApply(t, s, moved)
	nettest.Run(t, s.PodNS, "ip", "link", "del", "eth0")
	gone := Spaces{Host: s.Host}
	if err := errors.Join(gone.Remove(t.Context(), moved), gone.Restore(t.Context(), before), s.Remove(t.Context(), moved),
		s.Restore(t.Context(), before)); err != nil {
		t.Fatal(err)
	}
}

func TestMoveIsRefused(t *testing.T) {
	s := pair(t)
	moved, before := device(t, s)
	nettest.Run(t, s.PodNS, "ip", "link", "add", "eth0", "type", "bridge")
	if err := s.Apply(t.Context(), moved); !errors.Is(err, ErrForeign) {
		t.Errorf("over a link of that name: %v", err)
	}
	if err := errors.Join(s.Remove(t.Context(), moved), s.Restore(t.Context(), before)); err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, before)
	nettest.Run(t, s.PodNS, "ip", "link", "del", "eth0")
	other := moved
	other.Pod.Links = []state.Link{moved.Pod.Links[0]}
	other.Pod.Links[0].MovedFrom = &state.Origin{Space: state.Host, Name: "ens6"}
	if err := s.Apply(t.Context(), other); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "ens6") {
		t.Errorf("of a link that is not there: %v", err)
	}
	lo := moved
	lo.Pod.Links = []state.Link{moved.Pod.Links[0]}
	lo.Pod.Links[0].MovedFrom = &state.Origin{Space: state.Host, Name: "lo"}
	if err := s.Apply(t.Context(), lo); err == nil || !strings.Contains(err.Error(), "belongs to its namespace") {
		t.Errorf("of lo: %v", err)
	}
	mustApply(t, s, moved)
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "ens5", "type", "bridge")
	if err := s.Remove(t.Context(), moved); err == nil || !strings.Contains(err.Error(), "rename the host link ens5") {
		t.Errorf("back, where the name is taken: %v", err)
	}
	nettest.Run(t, s.Host.ns, "ip", "link", "del", "ens5")
	if err := errors.Join(s.Remove(t.Context(), moved), s.Restore(t.Context(), before)); err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, before)
}

func TestRoutesThatMustNotBe(t *testing.T) {
	s := pair(t)
	_, before := device(t, s)
	f := state.Fragment{Owner: "sbr"}
	f.Host.Routes = []state.Route{
		{Dst: prefix("192.0.2.0/24"), Link: "ens5", Src: addr("192.0.2.5"), Absent: true},
		{Dst: prefix("198.51.100.0/24"), Gw: addr("192.0.2.1"), Link: "ens5", Absent: true},
		{Dst: prefix("198.51.100.0/24"), Gw: addr("192.0.2.1"), Link: "ens5", Table: 100},
		{Dst: prefix("192.0.2.0/24"), Link: "ens5", Src: addr("192.0.2.5"), Table: 100},
		{Dst: prefix("2001:db8::/64"), Link: "ens5", Metric: 256, Absent: true},
	}
	mustApply(t, s, f)
	if out := nettest.Run(t, s.Host.ns, "ip", "route", "show", "dev", "ens5"); out != "" {
		t.Errorf("left: %s", out)
	}
	if err := s.Remove(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if out, _ := nettest.Try(s.Host.ns, "ip", "route", "show", "table", "100"); strings.Contains(out, "dev") {
		t.Errorf("left: %s", out)
	}
	before.Host.Routes = append(before.Host.Routes, state.Route{
		Dst: prefix("192.0.2.0/24"), Link: "ens5", Src: addr("192.0.2.5"), Protocol: 2,
	})
	if err := s.Restore(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, before)
}
