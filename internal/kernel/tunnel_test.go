// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// overlay returns a link of a mesh with the route to one peer.
func overlay(l state.Link, own, other string, via netip.Addr) state.Fragment {
	l.Up, l.Alias, l.Adopt, l.Recreate = state.On(), "weft:mesh", true, true
	host := func(a string) netip.Prefix { ip := addr(a); return netip.PrefixFrom(ip, ip.BitLen()) }
	return state.Fragment{Owner: "mesh", Host: state.Space{
		Links:  []state.Link{l},
		Addrs:  []state.Addr{{Link: l.Name, Prefix: host(own), NoDAD: true}},
		Routes: []state.Route{{Dst: host(other), Link: l.Name, Gw: via, OnLink: via.IsValid()}},
	}}
}

// A tun device is created, repaired, distinguished from a tap device, and deleted.
func TestTun(t *testing.T) {
	nettest.Need(t, "tap")
	s := pair(t)
	ns := s.Host.ns
	before := everything(t, s)
	f := overlay(state.Link{Name: "flannel0", Kind: state.Tap, MTU: 1472, Tun: &state.TunAttrs{IP: true}}, "10.42.1.0",
		"10.42.2.0", netip.Addr{})
	mustApply(t, s, f)
	writes := s.Host.Writes()
	mustApply(t, s, f)
	if n := s.Host.Writes() - writes; n != 0 {
		t.Errorf("a second Apply wrote %d times", n)
	}
	if out := nettest.Run(t, ns, "ip", "-d", "link", "show", "flannel0"); !strings.Contains(out, "tun type tun") ||
		!strings.Contains(out, "persist on") {
		t.Errorf("flannel0: %s", out)
	}
	for _, externalChange := range []string{
		"ip link del flannel0", "ip link set flannel0 mtu 1300", "ip link set flannel0 down", "ip addr flush dev flannel0",
	} {
		nettest.Run(t, ns, strings.Fields(externalChange)...)
		mustApply(t, s, f)
	}
	lines(t, ns, "link del flannel0", "tuntap add flannel0 mode tap") // without a mark, and of the wrong kind
	if d, err := s.Diff(t.Context(), f); err != nil || len(d) == 0 {
		t.Errorf("a tap device is taken for a tun device: %v, %v", d, err)
	}
	mustApply(t, s, f)
	if err := s.Remove(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if after := everything(t, s); after != before {
		t.Errorf("after Remove\n%s\nbefore\n%s", after, before)
	}
}

// IPv4 in IPv4: made, carries packets, repaired, follows the node's address on the existing device, and deleted.
func TestIPIP(t *testing.T) {
	nettest.Need(t, "ipip")
	a := pair(t)
	lan := makeUplink(t, a)
	b := Spaces{Host: dial(t, lan)}
	device := func(local string) state.Link {
		return state.Link{Name: "flannel.ipip", Kind: state.IPIP, MTU: 1480, IPIP: &state.IPIPAttrs{Local: addr(local)}}
	}
	near := overlay(device("10.7.0.254"), "10.42.1.0", "10.42.2.0", addr("10.7.0.1"))
	mustApply(t, a, near)
	mustApply(t, b, overlay(device("10.7.0.1"), "10.42.2.0", "10.42.1.0", addr("10.7.0.254")))
	ns := a.Host.ns
	ping := func() { t.Helper(); nettest.Run(t, ns, "ping", "-c1", "-W20", "-M", "do", "-s", "1452", "10.42.2.0") }
	ping()
	writes := a.Host.Writes()
	mustApply(t, a, near)
	if n := a.Host.Writes() - writes; n != 0 {
		t.Errorf("a second Apply wrote %d times", n)
	}
	if out := nettest.Run(t, ns, "ip", "-d", "link", "show", "flannel.ipip"); !strings.Contains(out,
		"local 10.7.0.254 ttl inherit nopmtudisc") {
		t.Errorf("flannel.ipip: %s", out)
	}
	for _, externalChange := range []string{
		"ip link del flannel.ipip", "ip link set flannel.ipip mtu 1300", "ip link set flannel.ipip down",
		"ip tunnel change flannel.ipip local 10.7.0.253",
	} {
		nettest.Run(t, ns, strings.Fields(externalChange)...)
		if d, err := a.Diff(t.Context(), near); err != nil || len(d) == 0 {
			t.Errorf("after %q: %v, %v", externalChange, d, err)
		}
		mustApply(t, a, near)
		ping()
	}
	index := func() string {
		return strings.Fields(nettest.Run(t, ns, "ip", "-o", "link", "show", "flannel.ipip"))[0]
	}
	was := index()
	lines(t, ns, "addr add 10.7.0.253/24 dev ens5")
	near.Host.Links[0].IPIP = &state.IPIPAttrs{Local: addr("10.7.0.253")}
	mustApply(t, a, near)
	if now := index(); now != was {
		t.Errorf("another address made another device: %s, then %s", was, now)
	}
	if err := a.Remove(t.Context(), near); err != nil {
		t.Fatal(err)
	}
	if out, err := nettest.Try(ns, "ip", "link", "show", "flannel.ipip"); err == nil {
		t.Errorf("it is still there: %s", out)
	}
}
