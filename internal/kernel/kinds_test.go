// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// makeUplink makes a link that acts as the node's uplink, and returns the namespace at its other end.
func makeUplink(t *testing.T, s Spaces) *netns.NS {
	t.Helper()
	lan := nettest.NS(t, "lan")
	lines(t, s.Host.ns, "link add ens5 address 02:00:00:00:00:05 type veth peer name wire netns "+lan.Path(),
		"link set ens5 up", "addr add 10.7.0.254/24 dev ens5")
	lines(t, lan, "link set wire up", "addr add 10.7.0.1/24 dev wire", "addr add fd00:7::1/64 dev wire nodad")
	return lan
}

// lines runs ip.
func lines(t *testing.T, ns *netns.NS, lines ...string) {
	t.Helper()
	for _, line := range lines {
		nettest.IP(t, ns, line)
	}
}

// onUplink returns a pod with one link on top of the node's uplink.
func onUplink(l state.Link) state.Fragment {
	l.Name, l.Alias, l.Up, l.Parent = "eth0", "weft:net/c/eth0", state.On(), &state.Parent{Space: state.Host, Name: "ens5"}
	return state.Fragment{Owner: "c", Pod: state.Space{
		Links: []state.Link{l},
		Addrs: []state.Addr{
			{Link: "eth0", Prefix: prefix("10.7.0.2/24")}, {Link: "eth0", Prefix: prefix("fd00:7::2/64"), NoDAD: true},
		},
		Routes: []state.Route{
			{Dst: prefix("0.0.0.0/0"), Gw: addr("10.7.0.1"), Link: "eth0"},
			{Dst: prefix("::/0"), Gw: addr("fd00:7::1"), Link: "eth0"},
		},
	}}
}

// macvtapIndex is the index of the tests' macvtaps.
const macvtapIndex = 0x60001234

func kinds() map[string]state.Link {
	two := 2000
	return map[string]state.Link{
		"macvlan": {Kind: state.Macvlan, MAC: state.SeedMAC("a"), Macvlan: &state.MacvlanAttrs{Mode: "bridge"}},
		"macvlan private": {
			Kind: state.Macvlan, MAC: state.SeedMAC("a"), Macvlan: &state.MacvlanAttrs{Mode: "private", BcQueueLen: &two},
			MTU: 1300,
		},
		"macvlan vepa":     {Kind: state.Macvlan, MAC: state.SeedMAC("a"), Macvlan: &state.MacvlanAttrs{Mode: "vepa"}},
		"macvlan passthru": {Kind: state.Macvlan, MAC: state.SeedMAC("a"), Macvlan: &state.MacvlanAttrs{Mode: "passthru"}},
		"macvtap": {
			Kind: state.Macvtap, Index: macvtapIndex, MAC: state.SeedMAC("a"), Macvlan: &state.MacvlanAttrs{Mode: "bridge"},
		},
		"ipvlan": {Kind: state.Ipvlan, MAC: state.MAC{2, 0, 0, 0, 0, 5}, Ipvlan: &state.IpvlanAttrs{Mode: "l2"}},
		"ipvlan l3": {
			Kind: state.Ipvlan, MAC: state.MAC{2, 0, 0, 0, 0, 5}, Ipvlan: &state.IpvlanAttrs{Mode: "l3"}, MTU: 1300,
		},
		"ipvlan l3s": {Kind: state.Ipvlan, MAC: state.MAC{2, 0, 0, 0, 0, 5}, Ipvlan: &state.IpvlanAttrs{Mode: "l3s"}},
		"vlan":       {Kind: state.VLAN, MAC: state.MAC{2, 0, 0, 0, 0, 5}, VLAN: &state.VLANAttrs{ID: 7}},
	}
}

// Links on top of an uplink are created in the pod, are as wanted, and carry packets.
func TestOnParent(t *testing.T) {
	for name, l := range kinds() {
		t.Run(name, func(t *testing.T) {
			kind, mode, _ := strings.Cut(name, " ")
			nettest.Need(t, kind)
			s := pair(t)
			lan := makeUplink(t, s)
			if kind == "vlan" {
				lines(t, lan, "addr flush dev wire", "link add link wire name tagged type vlan id 7", "link set tagged up",
					"addr add 10.7.0.1/24 dev tagged", "addr add fd00:7::1/64 dev tagged nodad")
			}
			layer3 := strings.HasPrefix(mode, "l3")
			if layer3 { // no address resolution for the pod
				lines(t, lan, "neigh add 10.7.0.2 lladdr 02:00:00:00:00:05 dev wire")
			}
			// A link of the node has the name that the pod's is to have.
			nettest.Run(t, s.Host.ns, "ip", "link", "add", "eth0", "type", "bridge")
			f := onUplink(l)
			mustApply(t, s, f)
			writes := s.Host.Writes() + s.Pod.Writes()
			mustApply(t, s, f)
			if n := s.Host.Writes() + s.Pod.Writes() - writes; n != 0 {
				t.Errorf("a second Apply wrote %d times", n)
			}
			out := nettest.Run(t, s.PodNS, "ip", "-d", "link", "show", "eth0")
			for _, word := range []string{kind, mode, f.Pod.Links[0].MAC.String(), "alias weft:net/c/eth0"} {
				if !strings.Contains(out, word) {
					t.Errorf("eth0 lacks %q: %s", word, out)
				}
			}
			nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "10.7.0.1")
			if !layer3 {
				nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "fd00:7::1")
			}
			for range 2 {
				if err := s.Release(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := nettest.Try(s.PodNS, "ip", "link", "show", "eth0"); err == nil {
				t.Errorf("it is still there: %s", out)
			}
			nettest.Run(t, s.Host.ns, "ip", "link", "show", "eth0")
		})
	}
}

// Differences are reported, and changed if they can be.
func TestOnParentDiffers(t *testing.T) {
	nettest.Need(t, "macvlan")
	s := pair(t)
	makeUplink(t, s)
	f := onUplink(kinds()["macvlan private"])
	mustApply(t, s, f)
	nettest.Run(t, s.PodNS, "ip", "link", "set", "eth0", "type", "macvlan", "mode", "bridge", "bcqueuelen", "3000")
	d, err := s.Diff(t.Context(), f)
	if err != nil || len(d) != 1 || !strings.Contains(d[0].Have, "mode bridge bcqueuelen 3000") {
		t.Errorf("differences: %v %v", d, err)
	}
	mustApply(t, s, f)
	nettest.Run(t, s.Host.ns, "ip", "link", "del", "ens5") // and with it the links on top of it
	if d, err := s.Diff(t.Context(), f); err != nil || len(d) == 0 || d[0].Have != "" {
		t.Errorf("differences without the parent: %v %v", d, err)
	}
	if err := s.Apply(t.Context(), f); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "parent ens5") {
		t.Errorf("apply without the parent: %v", err)
	}
	if err := s.Remove(t.Context(), f); err != nil {
		t.Error(err)
	}
}

// A parent that is a bridge port can have no macvlan; a name in use is an error.
func TestOnParentRefused(t *testing.T) {
	nettest.Need(t, "macvlan")
	s := pair(t)
	makeUplink(t, s)
	f := onUplink(kinds()["macvlan"])
	nettest.Run(t, s.PodNS, "ip", "link", "add", "eth0", "type", "bridge")
	if err := s.Apply(t.Context(), f); !errors.Is(err, ErrForeign) {
		t.Errorf("over another link: %v", err)
	}
	nettest.Run(t, s.PodNS, "ip", "link", "del", "eth0")
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, s.Host.ns, "ip", "link", "set", "ens5", "master", "br0")
	if err := s.Apply(t.Context(), f); !errors.Is(err, ErrUsed) || !strings.Contains(err.Error(), "parent ens5") {
		t.Errorf("upon a bridge's port: %v", err)
	}
}

// Both the parent and the link are in the pod.
func TestOnParentInPod(t *testing.T) {
	nettest.Need(t, "macvlan")
	s := pair(t)
	mustApply(t, s, ptp(1))
	f := onUplink(kinds()["macvlan"])
	f.Pod.Links[0].Name, f.Pod.Links[0].Parent = "net1", &state.Parent{Space: state.Pod, Name: "eth0"}
	f.Pod.Addrs, f.Pod.Routes = nil, nil
	mustApply(t, s, f)
	if out := nettest.Run(t, s.PodNS, "ip", "link", "show", "net1"); !strings.Contains(out, "net1@eth0") {
		t.Errorf("net1: %s", out)
	}
}

// A link whose maker was killed before setting the mark is recognized by its MAC.
func TestKindsHalfMade(t *testing.T) {
	for kind, l := range map[string]state.Link{
		"macvlan": kinds()["macvlan"], "tap": {Kind: state.Tap, MAC: state.SeedMAC("t")},
	} {
		t.Run(kind, func(t *testing.T) {
			nettest.Need(t, kind)
			s := pair(t)
			makeUplink(t, s)
			f := onUplink(l)
			f.Pod.Addrs, f.Pod.Routes = nil, nil
			if kind == "tap" {
				f.Pod.Links[0].Parent = nil
			}
			half := f
			half.Pod.Links = []state.Link{f.Pod.Links[0]}
			half.Pod.Links[0].Alias, half.Pod.Links[0].Up = "", nil
			mustApply(t, s, half)
			if err := s.Remove(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if out, err := nettest.Try(s.PodNS, "ip", "link", "show", "eth0"); err == nil {
				t.Errorf("it is left: %s", out)
			}
		})
	}
}

func TestTap(t *testing.T) {
	nettest.Need(t, "tap")
	user, group := uint32(0), uint32(0)
	for name, tun := range map[string]*state.TunAttrs{
		"plain": nil, "queues": {MultiQueue: true}, "owner": {Owner: &user},
		"both":       {Owner: &user, Group: &group, MultiQueue: true},
		"no selinux": {SELinux: "system_u:system_r:container_t:s0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := pair(t)
			f := state.Fragment{Owner: "c"}
			nettest.Run(t, s.PodNS, "ip", "link", "add", "br0", "type", "bridge")
			f.Pod.Links = []state.Link{{
				Name: "tap0", Kind: state.Tap, MAC: state.SeedMAC("t"), MTU: 1400, Up: state.On(), Alias: "weft:n/c/tap0",
				Master: "br0", Tun: tun,
			}}
			f.Pod.Addrs = []state.Addr{
				{Link: "tap0", Prefix: prefix("10.0.0.1/24")}, {Link: "tap0", Prefix: prefix("fd00::1/64"), NoDAD: true},
			}
			mustApply(t, s, f)
			writes := s.Pod.Writes()
			mustApply(t, s, f)
			if n := s.Pod.Writes() - writes; n != 0 {
				t.Errorf("a second Apply wrote %d times", n)
			}
			out := nettest.Run(t, s.PodNS, "ip", "-d", "link", "show", "tap0")
			for _, word := range []string{"tun type tap", "mtu 1400", "persist on", "master br0", "pi off"} {
				if !strings.Contains(out, word) {
					t.Errorf("tap0 lacks %q: %s", word, out)
				}
			}
			if tun != nil &&
				(strings.Contains(out, "multi_queue") != tun.MultiQueue ||
					strings.Contains(out, "user root") != (tun.Owner != nil) ||
					strings.Contains(out, "group root") != (tun.Group != nil)) {
				t.Errorf("tap0: %s", out)
			}
			if err := s.Release(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if out, err := nettest.Try(s.PodNS, "ip", "link", "show", "tap0"); err == nil {
				t.Errorf("it is still there: %s", out)
			}
		})
	}
}
