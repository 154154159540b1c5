// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// renamed makes a link eth0 in the pod and returns the fragment that renames it and makes a substitute, and its
// pre-image.
func renamed(t *testing.T, s Spaces) (f, before state.Fragment) {
	t.Helper()
	for _, argv := range []string{
		"link add eth0 address 02:00:00:00:00:05 mtu 1450 type veth peer name wire", "link set wire up", "link set eth0 up",
		"link set eth0 alias mark", "addr add 192.0.2.5/24 dev eth0", "addr add 2001:db8::5/64 dev eth0 nodad",
		"route add default via 192.0.2.1 dev eth0", "route add 2001:db8:1::/64 via 2001:db8::1 dev eth0",
	} {
		nettest.IP(t, s.PodNS, argv)
	}
	f = state.Fragment{Owner: "renamed"}
	f.Pod.Links = []state.Link{
		{Name: "br", Kind: state.Bridge, MAC: state.SeedMAC("br"), Up: state.On(), Alias: "weft:x"},
		{
			Name: "eth0-nic", MovedFrom: &state.Origin{Space: state.Pod, Name: "eth0"}, Alias: "eth0",
			MAC:    state.MAC{2, 0, 0, 0, 0, 9},
			Master: "br", Up: state.On(), Port: &state.PortAttrs{Learning: state.Off()},
		},
		{Name: "eth0", Kind: state.Bridge, MAC: state.MAC{2, 0, 0, 0, 0, 5}, MTU: 1450, Alias: "weft:x"},
	}
	f.Pod.Addrs = []state.Addr{
		{Link: "eth0-nic", Prefix: prefix("192.0.2.5/24"), Absent: true},
		{Link: "eth0-nic", Prefix: prefix("2001:db8::5/64"), Absent: true},
		{Link: "eth0", Prefix: prefix("192.0.2.5/24")},
		{Link: "eth0", Prefix: prefix("2001:db8::5/64"), NoDAD: true},
	}
	before = state.Fragment{Owner: "before"}
	before.Pod.Links = []state.Link{
		{Name: "eth0", MTU: 1450, MAC: state.MAC{2, 0, 0, 0, 0, 5}, Up: state.On(), Alias: "mark"},
	}
	before.Pod.Addrs = []state.Addr{
		{Link: "eth0", Prefix: prefix("192.0.2.5/24")}, {Link: "eth0", Prefix: prefix("2001:db8::5/64"), NoDAD: true},
	}
	before.Pod.Routes = []state.Route{
		{Dst: prefix("0.0.0.0/0"), Gw: addr("192.0.2.1"), Link: "eth0", Protocol: 3},
		{Dst: prefix("2001:db8:1::/64"), Gw: addr("2001:db8::1"), Link: "eth0", Protocol: 3},
	}
	return f, before
}

// TestRenamedAndBack: a link's name passes to a substitute and back, wherever undo begins.
func TestRenamedAndBack(t *testing.T) {
	testMoveBack(t, renamed, func(t *testing.T, s Spaces, taken bool) {
		if out, err := nettest.Try(s.PodNS, "ip", "link", "show", "eth0-nic"); !taken && err == nil {
			t.Errorf("it is still there: %s", out)
		}
	})
}

// TestRenamedHalf: the next Apply and undo handle each state in which a killed Apply or undo leaves the links.
func TestRenamedHalf(t *testing.T) {
	halves := map[string][]string{
		"marked":  {"link set eth0 alias eth0"},
		"renamed": {"link set eth0 alias eth0", "link set eth0 down", "link set eth0 name eth0-nic"},
		"back":    {"link set eth0 alias eth0", "link set eth0 down"},
	}
	for name, half := range halves {
		t.Run(name, func(t *testing.T) {
			for _, again := range []bool{false, true} {
				s := pair(t)
				f, before := renamed(t, s)
				for _, argv := range half {
					nettest.IP(t, s.PodNS, argv)
				}
				if again {
					mustApply(t, s, f)
				}
				if err := errors.Join(s.Remove(t.Context(), f), s.Restore(t.Context(), before)); err != nil {
					t.Fatal(err)
				}
				wantSame(t, s, before)
			}
		})
	}
}

// TestRenamedGone: when the link was deleted, its substitute is not mistaken for it.
func TestRenamedGone(t *testing.T) {
	s := pair(t)
	f, _ := renamed(t, s)
	mustApply(t, s, f)
	nettest.Run(t, s.PodNS, "ip", "link", "del", "eth0-nic")
	if err := s.Apply(t.Context(), f); !errors.Is(err, ErrMissing) || err.Error() != "pod: link eth0 does not exist" {
		t.Errorf("apply: %v", err)
	}
}
