// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// enslaved returns a pod whose link is in a VRF.
func enslaved(name string) state.Fragment {
	return state.Fragment{Owner: "vrf", Pod: state.Space{
		Links: []state.Link{
			{
				Name: "blue", Kind: state.VRF, MAC: state.SeedMAC("blue"), Up: state.On(), Alias: SharedMark, Shared: true,
				VRF: &state.VRFAttrs{Table: 7},
			},
			{Name: name, Master: "blue"},
		},
		Routes: []state.Route{
			{Dst: prefix("10.1.255.1/32"), Link: name, Table: 7},
			{Dst: prefix("0.0.0.0/0"), Gw: addr("10.1.255.1"), Link: name, Table: 7},
			{Dst: prefix("fd00:1::1/128"), Link: name, Table: 7},
			{Dst: prefix("::/0"), Gw: addr("fd00:1::1"), Link: name, Table: 7},
		},
	}}
}

// A link enters a VRF and leaves it, with its addresses; the VRF is deleted with its last link.
func TestVRF(t *testing.T) {
	nettest.Need(t, "vrf")
	for _, when := range []string{"with the link", "afterwards"} {
		t.Run(when, func(t *testing.T) {
			s := pair(t)
			f, v := ptp(1), enslaved("eth0")
			main := f.Pod.Routes
			f.Pod.Routes = nil
			f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: "eth0", Prefix: prefix("fe80::2/64"), NoDAD: true})
			if when == "afterwards" {
				mustApply(t, s, f)
			} else {
				f.Merge(v)
				v = f
			}
			mustApply(t, s, v)
			wantSame(t, s, f)
			writes := s.Pod.Writes()
			mustApply(t, s, v)
			if n := s.Pod.Writes() - writes; n != 0 {
				t.Errorf("a second Apply wrote %d times", n)
			}
			for _, to := range []string{"10.1.255.1", "fd00:1::1"} {
				nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "-I", "blue", to)
			}
			if when != "afterwards" {
				if err := s.Release(t.Context(), v); err != nil {
					t.Fatal(err)
				}
				if out, err := nettest.Try(s.PodNS, "ip", "link", "show", "blue"); err == nil {
					t.Errorf("it is still there: %s", out)
				}
				return
			}
			for range 2 {
				if err := s.Remove(t.Context(), v); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Restore(t.Context(), state.Fragment{Owner: "back", Pod: state.Space{Routes: main}}); err != nil {
				t.Fatal(err)
			}
			wantSame(t, s, f)
			if out := nettest.Run(t, s.PodNS, "ip", "-d", "link"); strings.Contains(out, "vrf") {
				t.Errorf("there is still a VRF: %s", out)
			}
			nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "fd00:1::1")
		})
	}
}

// A VRF stays while another link is in it, and when weft did not make it.
func TestVRFStays(t *testing.T) {
	nettest.Need(t, "vrf")
	s := pair(t)
	mustApply(t, s, ptp(1))
	nettest.Run(t, s.PodNS, "ip", "link", "add", "e2", "type", "bridge")
	first, second := enslaved("eth0"), enslaved("e2")
	second.Pod.Routes = nil
	mustApply(t, s, first)
	mustApply(t, s, second)
	if err := s.Remove(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, second)
	other := second.Pod.Links[0]
	other.VRF = &state.VRFAttrs{Table: 8}
	if err := s.Apply(t.Context(), state.Fragment{Pod: state.Space{Links: []state.Link{other}}}); err == nil ||
		!strings.Contains(err.Error(), "table 8") {
		t.Errorf("another table: %v", err)
	}
	nettest.Run(t, s.PodNS, "ip", "link", "set", "blue", "alias", "mine")
	if err := s.Remove(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if out := nettest.Run(t, s.PodNS, "ip", "link", "show", "e2"); strings.Contains(out, "master") {
		t.Errorf("e2: %s", out)
	}
	nettest.Run(t, s.PodNS, "ip", "link", "show", "blue")
}
