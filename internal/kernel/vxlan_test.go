// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// tunnel returns one end of a VXLAN between a (10.7.0.254 and fd00:7::254) and b (10.7.0.1 and fd00:7::1).
func tunnel(local, far netip.Addr, own, other string) state.Fragment {
	name := "weft.7"
	host := func(a string) netip.Prefix { ip := addr(a); return netip.PrefixFrom(ip, ip.BitLen()) }
	return state.Fragment{Owner: "mesh", Host: state.Space{
		Links: []state.Link{
			{
				Name:     name,
				Kind:     state.VXLAN,
				MAC:      state.SeedMAC(own),
				MTU:      1400,
				Up:       state.On(),
				Alias:    "weft:mesh",
				Recreate: true,
				VXLAN:    &state.VXLANAttrs{VNI: 7, Local: local, Learning: state.Off()},
			},
		},
		Addrs:  []state.Addr{{Link: name, Prefix: host(own), NoDAD: true}},
		Neighs: []state.Neigh{{Link: name, IP: addr(other), MAC: state.SeedMAC(other)}},
		FDBs:   []state.FDB{{Link: name, MAC: state.SeedMAC(other), Dst: far}},
		Routes: []state.Route{{Dst: host(other), Link: name}},
	}}
}

// A tunnel is created, carries packets, is repaired after an external change, re-created when its end moves, and
// deleted.
func TestVXLAN(t *testing.T) {
	nettest.Need(t, "vxlan")
	for family, endpoints := range map[string][4]string{
		"IPv4": {"10.7.0.254", "10.7.0.1", "10.42.1.0", "10.42.2.0"},
		"IPv6": {"fd00:7::254", "fd00:7::1", "fd42:1::", "fd42:2::"},
	} {
		t.Run(family, func(t *testing.T) {
			a := pair(t)
			lan := makeUplink(t, a)
			lines(t, a.Host.ns, "addr add fd00:7::254/64 dev ens5 nodad")
			for range 6000 { // the kernel adds the route to the address a moment after the link has a carrier
				if strings.Contains(nettest.Run(t, a.Host.ns, "ip", "-6", "route", "show", "table", "local"), "fd00:7::254") {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			b := Spaces{Host: dial(t, lan)}
			near, remote := addr(endpoints[0]), addr(endpoints[1])
			before := everything(t, a)
			f := tunnel(near, remote, endpoints[2], endpoints[3])
			mustApply(t, a, f)
			mustApply(t, b, tunnel(remote, near, endpoints[3], endpoints[2]))
			ping := func() { t.Helper(); nettest.Run(t, a.Host.ns, "ping", "-c1", "-W20", endpoints[3]) }
			ping()
			writes := a.Host.Writes()
			mustApply(t, a, f)
			if n := a.Host.Writes() - writes; n != 0 {
				t.Errorf("a second Apply wrote %d times", n)
			}
			wantSame(t, a, f)
			for _, externalChange := range []string{
				"ip link del weft.7", "bridge fdb del " + state.SeedMAC(endpoints[3]).String() + " dev weft.7",
				"ip neigh flush dev weft.7 nud permanent",
				"bridge fdb replace " + state.SeedMAC(endpoints[3]).String() + " dev weft.7 dst " + endpoints[0],
				"ip link set weft.7 mtu 1300", "ip link set weft.7 down",
			} {
				nettest.Run(t, a.Host.ns, strings.Fields(externalChange)...)
				if d, err := a.Diff(t.Context(), f); err != nil || len(d) == 0 {
					t.Errorf("after %q: %v, %v", externalChange, d, err)
				}
				mustApply(t, a, f)
				wantSame(t, a, f)
				ping()
			}
			moved := tunnel(near, remote, endpoints[2], endpoints[3])
			moved.Host.Links[0].VXLAN.Port = 4790
			mustApply(t, a, moved)
			wantSame(t, a, moved)
			if err := a.Remove(t.Context(), moved); err != nil {
				t.Fatal(err)
			}
			if after := everything(t, a); after != before {
				t.Errorf("after Remove\n%s\nbefore\n%s", after, before)
			}
		})
	}
}

// Changeable attributes are changed on the existing device; only others re-create it. A device without a mark is
// adopted if the plan allows it.
func TestVXLANIsKept(t *testing.T) {
	nettest.Need(t, "vxlan")
	a := pair(t)
	makeUplink(t, a)
	ns := a.Host.ns
	index := func() string {
		t.Helper()
		return strings.Fields(nettest.Run(t, ns, "ip", "-o", "link", "show", "weft.7"))[0]
	}
	lines(t, ns, "link add weft.7 type vxlan id 7 dstport 8472 local 10.7.0.254 learning")
	theirs := index()
	f := tunnel(addr("10.7.0.254"), addr("10.7.0.1"), "10.42.1.0", "10.42.2.0")
	if err := a.Apply(t.Context(), f); !errors.Is(err, ErrForeign) {
		t.Errorf("another one's device: %v", err)
	}
	l := &f.Host.Links[0]
	l.Adopt, l.TxChecksum = true, state.Off()
	lines(t, ns, "addr add 10.7.0.253/24 dev ens5")
	for i, change := range []func(){
		func() {}, func() { l.VXLAN.Local = addr("10.7.0.253") }, func() { l.VXLAN.Learning = state.On() },
		func() { l.TxChecksum = state.On() },
		func() { l.MAC = state.SeedMAC("another") }, func() { l.MTU = 1350 },
	} {
		change()
		if d, err := a.Diff(t.Context(), f); err != nil || len(d) == 0 {
			t.Errorf("change %d is not seen: %v", i, err)
		}
		mustApply(t, a, f)
		wantSame(t, a, f)
		if now := index(); now != theirs {
			t.Errorf("change %d made the device anew", i)
		}
	}
	for i, change := range []func(){func() { l.VXLAN.GBP = true }, func() { l.VXLAN.Port = 4790 }} {
		before := index()
		change()
		mustApply(t, a, f)
		wantSame(t, a, f)
		if now := index(); now == before {
			t.Errorf("change %d left the device", i)
		}
	}
}
