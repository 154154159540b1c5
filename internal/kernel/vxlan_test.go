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

// tunnel is one end of a VXLAN between a (10.7.0.254 and fd00:7::254) and b (10.7.0.1 and fd00:7::1).
func tunnel(local, far netip.Addr, own, other string) state.Fragment {
	name := "weft.7"
	host := func(a string) netip.Prefix { ip := addr(a); return netip.PrefixFrom(ip, ip.BitLen()) }
	return state.Fragment{Owner: "mesh", Host: state.Space{
		Links: []state.Link{{
			Name: name, Kind: state.Vxlan, MAC: state.SeedMAC(own), MTU: 1400, Up: state.On(), Alias: "weft:mesh", Remade: true,
			Vxlan: &state.VxlanAttrs{VNI: 7, Local: local, Learning: state.Off()},
		}},
		Addrs:  []state.Addr{{Link: name, Prefix: host(own), NoDAD: true}},
		Neighs: []state.Neigh{{Link: name, IP: addr(other), MAC: state.SeedMAC(other)}},
		FDBs:   []state.FDB{{Link: name, MAC: state.SeedMAC(other), Dst: far}},
		Routes: []state.Route{{Dst: host(other), Link: name}},
	}}
}

// A tunnel is made, carries packets, is brought back when somebody spoils it, made anew when its end moves, and goes.
func TestVxlan(t *testing.T) {
	nettest.Need(t, "vxlan")
	for family, ends := range map[string][4]string{
		"IPv4": {"10.7.0.254", "10.7.0.1", "10.42.1.0", "10.42.2.0"},
		"IPv6": {"fd00:7::254", "fd00:7::1", "fd42:1::", "fd42:2::"},
	} {
		t.Run(family, func(t *testing.T) {
			a := pair(t)
			lan := lower(t, a)
			lines(t, a.Host.ns, "addr add fd00:7::254/64 dev ens5 nodad")
			for range 200 { // the kernel routes to the address a moment after the link has a carrier
				if strings.Contains(nettest.Run(t, a.Host.ns, "ip", "-6", "route", "show", "table", "local"), "fd00:7::254") {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			b := Spaces{Host: dial(t, lan)}
			near, remote := addr(ends[0]), addr(ends[1])
			before := everything(t, a)
			f := tunnel(near, remote, ends[2], ends[3])
			mustApply(t, a, f)
			mustApply(t, b, tunnel(remote, near, ends[3], ends[2]))
			ping := func() { t.Helper(); nettest.Run(t, a.Host.ns, "ping", "-c1", "-W2", ends[3]) }
			ping()
			writes := a.Host.Writes()
			mustApply(t, a, f)
			if n := a.Host.Writes() - writes; n != 0 {
				t.Errorf("a second Apply wrote %d times", n)
			}
			wantSame(t, a, f)
			for _, vandal := range []string{
				"ip link del weft.7", "bridge fdb del " + state.SeedMAC(ends[3]).String() + " dev weft.7",
				"ip neigh flush dev weft.7 nud permanent",
				"bridge fdb replace " + state.SeedMAC(ends[3]).String() + " dev weft.7 dst " + ends[0],
				"ip link set weft.7 mtu 1300", "ip link set weft.7 down",
			} {
				nettest.Run(t, a.Host.ns, strings.Fields(vandal)...)
				if d, err := a.Diff(t.Context(), f); err != nil || len(d) == 0 {
					t.Errorf("after %q: %v, %v", vandal, d, err)
				}
				mustApply(t, a, f)
				wantSame(t, a, f)
				ping()
			}
			moved := tunnel(near, remote, ends[2], ends[3])
			moved.Host.Links[0].Vxlan.Port = 4790
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

// What can be changed is changed on the device that is there; only what cannot makes another one. One without a mark is
// taken for ours where the plan allows it.
func TestVxlanIsKept(t *testing.T) {
	nettest.Need(t, "vxlan")
	a := pair(t)
	lower(t, a)
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
	l.Adopted, l.TxChecksum = true, state.Off()
	lines(t, ns, "addr add 10.7.0.253/24 dev ens5")
	for i, change := range []func(){
		func() {}, func() { l.Vxlan.Local = addr("10.7.0.253") }, func() { l.Vxlan.Learning = state.On() },
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
	for i, change := range []func(){func() { l.Vxlan.GBP = true }, func() { l.Vxlan.Port = 4790 }} {
		before := index()
		change()
		mustApply(t, a, f)
		wantSame(t, a, f)
		if now := index(); now == before {
			t.Errorf("change %d left the device", i)
		}
	}
}
