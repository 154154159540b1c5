// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestForeignNamesAreRefused: a link that has a wanted name but is not the wanted link causes an error that names it,
// and is not changed.
func TestForeignNamesAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		inPod bool
		make  []string
		plan  state.Fragment
		want  error
		names string
	}{
		"another kind": {
			false, []string{"link", "add", "cni0", "type", "veth", "peer", "name", "other"}, port(1), ErrForeign, "cni0",
		},
		"unmarked bridge": {false, []string{"link", "add", "cni0", "type", "bridge"}, port(1), ErrForeign, "cni0"},
		"unmarked pair": {
			false, []string{"link", "add", "veth0001", "type", "veth", "peer", "name", "other"}, ptp(1), ErrForeign, "veth0001",
		},
		"pod has the name": {true, []string{"link", "add", "eth0", "type", "bridge"}, ptp(1), ErrExists, "eth0"},
		"pair of somebody": {
			true, []string{"link", "add", "eth0", "type", "veth", "peer", "name", "other"}, ptp(1), ErrExists, "eth0",
		},
		"route in its stead": {
			false, []string{"route", "add", "10.1.0.1/32", "dev", "lo"}, ptp(1), ErrForeign, "10.1.0.1/32",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := pair(t)
			ns := s.Host.ns
			nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
			if test.inPod {
				ns = s.Pod.ns
			}
			nettest.Run(t, ns, append([]string{"ip"}, test.make...)...)
			before := snapshot(t, s)
			err := s.Apply(t.Context(), test.plan)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.names) {
				t.Errorf("apply: %v, want one that names %s and is %q", err, test.names, test.want)
			}
			if err := s.Remove(t.Context(), test.plan); err != nil {
				t.Errorf("remove: %v", err)
			}
			if err := s.RemoveShared(t.Context(), test.plan); err != nil {
				t.Errorf("remove shared: %v", err)
			}
			if after := snapshot(t, s); after != before {
				t.Errorf("foreign state changed:\n%s\nwas:\n%s", after, before)
			}
		})
	}
}

// TestIndexInUse: when the index that was chosen for a new link belongs to another link, that one is not
// changed, and another index is chosen.
func TestIndexInUse(t *testing.T) {
	s := pair(t)
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "theirs", "index", "4711", "type", "bridge")
	nettest.Run(t, s.Host.ns, "ip", "link", "set", "theirs", "mtu", "1333")
	before := nettest.Run(t, s.Host.ns, "ip", "-d", "addr", "show", "theirs")
	chosen := 0
	s.Host.index = func() int {
		if chosen++; chosen <= 3 {
			return 4711
		}
		return newIndex()
	}
	mustApply(t, s, ptp(1))
	if chosen < 4 {
		t.Errorf("only %d indexes were asked for", chosen)
	}
	if after := nettest.Run(t, s.Host.ns, "ip", "-d", "addr", "show", "theirs"); after != before {
		t.Errorf("their link is now %s, was %s", after, before)
	}
	s = pair(t)
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "theirs", "index", "4711", "type", "bridge")
	s.Host.index = func() int { return 4711 }
	if err := s.Apply(t.Context(), ptp(1)); err == nil {
		t.Error("apply with nothing but taken indexes succeeded")
	}
}

// TestForeignObjectsStay: objects that the fragment does not name stay, on our own links as well.
func TestForeignObjectsStay(t *testing.T) {
	s := pair(t)
	f := port(1)
	mustApply(t, s, f)
	host := func(argv ...string) { nettest.Run(t, s.Host.ns, append([]string{"ip"}, argv...)...) }
	host("addr", "add", "10.77.0.1/24", "dev", "cni0")
	host("route", "add", "10.78.0.0/16", "via", "10.77.0.2", "dev", "cni0")
	host("route", "add", "10.1.0.1/32", "dev", "cni0", "metric", "5")
	host("rule", "add", "from", "10.77.0.0/24", "table", "77")
	host("neigh", "add", "10.77.0.3", "lladdr", "02:00:00:00:00:03", "dev", "cni0")
	host("link", "add", "port7", "master", "cni0", "type", "veth", "peer", "name", "far7")
	before := scrub(snapshot(t, s))
	mustApply(t, s, f)
	if after := scrub(snapshot(t, s)); after != before {
		t.Errorf("apply changed foreign things:\n%s\nwas:\n%s", after, before)
	}
	if err := s.Remove(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveShared(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	all := snapshot(t, s)
	for _, part := range []string{"10.77.0.1/24", "10.78.0.0/16", "metric 5", "port7", "lookup 77", "cni0"} {
		if !strings.Contains(all, part) {
			t.Errorf("%s was taken away", part)
		}
	}
	host("link", "del", "port7")
	if err := s.RemoveShared(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(snapshot(t, s), "cni0") {
		t.Error("a bridge of ours without ports stays")
	}
}

// TestUnmarkedPairIsOurs: a pair whose maker was killed before setting the mark is recognized by the MAC that the plan
// chose.
func TestUnmarkedPairIsOurs(t *testing.T) {
	for _, remove := range []bool{false, true} {
		s := pair(t)
		f := ptp(1)
		half := state.Fragment{Host: state.Space{Links: f.Host.Links}, Pod: state.Space{Links: f.Pod.Links}}
		half.Host.Links[0].Alias, half.Pod.Links[0].Alias = "", ""
		mustApply(t, s, half)
		f = ptp(1)
		if !remove {
			mustApply(t, s, f)
			continue
		}
		if err := s.Remove(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if out := snapshot(t, s); strings.Contains(out, "veth0001") || strings.Contains(out, "eth0") {
			t.Errorf("the pair stays:\n%s", out)
		}
	}
}

// TestLostEndIsRecreated: when the other end of our pair was moved away or renamed, our end is deleted and the pair
// re-created.
func TestLostEndIsRecreated(t *testing.T) {
	s := pair(t)
	f := ptp(1)
	mustApply(t, s, f)
	nettest.Run(t, s.Pod.ns, "ip", "link", "set", "eth0", "down")
	nettest.Run(t, s.Pod.ns, "ip", "link", "set", "eth0", "name", "lost0")
	mustApply(t, s, f)
	if out := nettest.Run(t, s.Pod.ns, "ip", "link"); strings.Contains(out, "lost0") {
		t.Errorf("the lost end stays: %s", out)
	}
}

// TestAdoptedBridgeKeepsItsMAC: a bridge of another program without an assigned MAC does not take its new port's.
func TestAdoptedBridgeKeepsItsMAC(t *testing.T) {
	s := pair(t)
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "cni0", "type", "bridge")
	q := state.Query{Space: state.Host, Link: "cni0"}
	a, err := s.Observe(t.Context(), []state.Query{q})
	if err != nil {
		t.Fatal(err)
	}
	f := port(1)
	f.Host.Links[0] = state.Link{Name: "cni0", Kind: state.Bridge, MAC: a[q].Link.MAC, Up: state.On(), Shared: true}
	f.Host.Links[1].MAC = state.MAC{0x02, 0, 0, 0, 0, 1} // lower than any that the kernel chooses
	f.Pod.Links[0].MAC = state.MAC{0x02, 0, 0, 0, 0, 2}
	mustApply(t, s, f)
}
