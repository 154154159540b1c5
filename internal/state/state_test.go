// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// TestStrings: each value prints itself as an argument of ip(8), set fields only.
func TestStrings(t *testing.T) {
	one, scope, seven, eight := 1, ScopeLink, uint32(7), uint32(8)
	for want, value := range map[string]fmt.Stringer{
		"link eth0": Link{Name: "eth0"},
		"link br0 kind bridge mac 02:00:00:00:00:01 mtu 1400 up on promisc off vlan_filtering off group_fwd_mask 1 alias weft:shared": Link{
			Name: "br0", Kind: Bridge, MAC: MAC{2, 0, 0, 0, 0, 1}, MTU: 1400, Up: On(), Promisc: Off(), Alias: "weft:shared",
			Bridge: &BridgeAttrs{VLANFiltering: Off(), GroupFwdMask: &one},
		},
		"link v kind veth master br0 peer eth0@pod hairpin on isolated off": Link{
			Name: "v", Kind: Veth, Master: "br0", Peer: &Peer{Space: Pod, Name: "eth0"},
			Port: &PortAttrs{Hairpin: On(), Isolated: Off()},
		},
		"link e kind macvlan up on upon ens5@host mode vepa bcqueuelen 1": Link{
			Name: "e", Kind: Macvlan, Up: On(), Parent: &Parent{Host, "ens5"},
			Macvlan: &MacvlanAttrs{Mode: "vepa", BcQueueLen: &one},
		},
		"link e kind ipvlan upon e0@pod mode l3s": Link{
			Name: "e", Kind: Ipvlan, Parent: &Parent{Pod, "e0"}, Ipvlan: &IpvlanAttrs{Mode: "l3s"},
		},
		"link e kind vlan upon ens5@host id 0": Link{
			Name: "e", Kind: VLAN, Parent: &Parent{Host, "ens5"}, VLAN: &VLANAttrs{},
		},
		"link blue kind vrf table 7": Link{Name: "blue", Kind: VRF, VRF: &VRFAttrs{Table: 7}},
		"link e kind tun multi_queue user 7 group 8 context a:b:c": Link{
			Name: "e", Kind: Tap, Tun: &TunAttrs{MultiQueue: true, Owner: &seven, Group: &eight, SELinux: "a:b:c"},
		},
		"link p master br0 vlans 1 pvid untagged, 5-6": Link{
			Name: "p", Master: "br0", VLANs: &PortVLANs{
				Ranges: []VLANRange{{First: 1, Last: 1, PVID: true, Untagged: true}, {First: 5, Last: 6}},
			},
		},
		"ip6tables table nat":          IPTables{IPv6: true, Table: "nat"},
		"addr 10.0.0.1/24 dev eth0":    Addr{Link: "eth0", Prefix: prefix("10.0.0.1/24")},
		"no addr 10.0.0.1/24 dev eth0": Addr{Link: "eth0", Prefix: prefix("10.0.0.1/24"), Absent: true},
		"addr 10.0.0.1/32 dev eth0 peer 10.0.0.2/32": Addr{
			Link: "eth0", Prefix: prefix("10.0.0.1/32"), Peer: prefix("10.0.0.2/32"),
		},
		"route 0.0.0.0/0 via 10.0.0.1 dev eth0": Route{Dst: prefix("0.0.0.0/0"), Gw: addr("10.0.0.1"), Link: "eth0"},
		"route fd00::/8 type 6":                 Route{Dst: prefix("fd00::/8"), Type: 6},
		"route 10.0.0.0/8 dev e src 10.0.0.1 metric 7 table 9 scope 253 mtu 1280 advmss 1200 onlink": Route{
			Dst: prefix("10.0.0.0/8"), Link: "e", Src: addr("10.0.0.1"), Metric: 7, Table: 9, Scope: &scope, MTU: 1280,
			AdvMSS: 1200, OnLink: true,
		},
		"rule 5 inet6 from fd00::/8 to fd01::/16 iif a oif b fwmark 0x10/0xff table 7": Rule{
			Priority: 5, IPv6: true, From: prefix("fd00::/8"), To: prefix("fd01::/16"), IIf: "a", OIf: "b", Mark: 0x10,
			Mask: 0xff, Table: 7,
		},
		"rule 0 table 255": Rule{Table: 255},
		"neigh 10.0.0.2 lladdr 02:00:00:00:00:02 dev e": Neigh{Link: "e", IP: addr("10.0.0.2"), MAC: MAC{2, 0, 0, 0, 0, 2}},
		"neigh proxy fd00::2 dev e":                     Neigh{Link: "e", IP: addr("fd00::2"), Proxy: true},
		"sysctl net/ipv4/ip_forward = 1":                Sysctl{Name: "net/ipv4/ip_forward", Value: "1"},
		"effect announce pod dev eth0 [10.0.0.1]": Effect{
			Kind: Announce, Space: Pod, Link: "eth0", Addrs: []netip.Addr{addr("10.0.0.1")},
		},
		"host: missing link a":                       Difference{Space: Host, Want: "link a"},
		"pod: want link a up on, have link a up off": Difference{Space: Pod, Want: "link a up on", Have: "link a up off"},
	} {
		if got := value.String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestMAC(t *testing.T) {
	for _, bad := range []string{"", "02:00", "02:00:00:00:00:00:00:01", "xx:00:00:00:00:00"} {
		if m, err := ParseMAC(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("parse %q: %s, %v", bad, m, err)
		}
	}
	for _, good := range []string{"02:00:00:00:00:0a", "02-00-00-00-00-0A", "0200.0000.000a"} {
		if m, err := ParseMAC(good); err != nil || m.String() != "02:00:00:00:00:0a" {
			t.Errorf("parse %q: %s, %v", good, m, err)
		}
	}
	seen := map[MAC]bool{}
	for i := range 1000 {
		m := SeedMAC(fmt.Sprint("seed", i))
		if m[0]&3 != 2 || seen[m] {
			t.Fatalf("seed %d: %s is not locally administered unicast, or was there before", i, m)
		}
		seen[m] = true
	}
	if SeedMAC("a") != SeedMAC("a") {
		t.Error("the same seed gave two addresses")
	}
	type holder struct {
		MAC MAC `json:"mac,omitzero"`
	}
	for _, h := range []holder{{}, {SeedMAC("x")}} {
		b, err := json.Marshal(h)
		var back holder
		if err != nil || json.Unmarshal(b, &back) != nil || back != h || (h.MAC.IsZero() != (string(b) == "{}")) {
			t.Errorf("%s became %s", b, back.MAC)
		}
	}
	if err := json.Unmarshal([]byte(`{"mac":"nonsense"}`), &holder{}); err == nil {
		t.Error("nonsense was taken for an address")
	}
}

// full returns a space in which every list has an element.
func full(mark string) Space {
	return Space{
		Links:  []Link{{Name: mark, Up: On(), Peer: &Peer{Pod, "p"}}},
		Addrs:  []Addr{{Link: mark, Prefix: prefix("10.0.0.1/8")}},
		Routes: []Route{{Dst: prefix("::/0"), Link: mark}}, Rules: []Rule{{Table: 7, IIf: mark}},
		Neighs: []Neigh{{Link: mark, IP: addr("::1"), MAC: MAC{1}}}, Sysctls: []Sysctl{{Name: mark, Value: "1"}},
		FDBs:     []FDB{{Link: mark, MAC: MAC{1}, Dst: addr("10.0.0.1")}},
		Tables:   []Table{{Name: mark, Sets: []Set{{Name: "s", Elements: []Element{{Key: []string{"a"}}}}}}},
		Qdiscs:   []Qdisc{{Link: mark, Kind: TBF, Rate: 1}},
		Joins:    []Join{{Tap: mark, Link: "e", LocalAddrs: []netip.Addr{addr("fe80::1")}, ProxySubnet: prefix("10.0.0.0/8"), RS: true}},
		Sources:  []ZoneSource{{Zone: mark, Source: prefix("10.0.0.0/8")}},
		IPTables: []IPTables{{Table: "nat", Chains: []IPChain{{Name: mark, Rules: []IPRule{{Text: "-j RETURN"}}}}}},
	}
}

// TestMergeChanges checks every list of a space by reflection, so that a new one is not forgotten. A later plugin's
// change to an earlier plugin's link becomes a part of that link.
func TestMergeChanges(t *testing.T) {
	made := Link{Name: "e", Kind: Veth, MAC: MAC{1}, MTU: 1500, Up: On(), Alias: "m", Peer: &Peer{Host, "p"}}
	ten := 10
	f := Fragment{
		Pod: Space{
			Links: []Link{made, {Name: "o"}}, Sysctls: []Sysctl{{Name: "a", Value: "1", Shared: true}, {Name: "b", Value: "1"}},
		},
	}
	before := f
	f.Merge(Fragment{Pod: Space{
		Links:   []Link{{Name: "e", MAC: MAC{2}, Promisc: On(), TxQLen: &ten, Master: "vrf"}, {Name: "n", MTU: 9}},
		Sysctls: []Sysctl{{Name: "a", Value: "0"}, {Name: "c", Value: "2"}},
	}})
	want := Space{
		Links: []Link{
			{
				Name: "e", Kind: Veth, MAC: MAC{2}, MTU: 1500, Up: On(), Alias: "m", Peer: &Peer{Host, "p"}, Promisc: On(),
				TxQLen: &ten, Master: "vrf",
			},
			{Name: "o"},
			{Name: "n", MTU: 9},
		},
		Sysctls: []Sysctl{{Name: "a", Value: "0", Shared: true}, {Name: "b", Value: "1"}, {Name: "c", Value: "2"}},
	}
	if !reflect.DeepEqual(f.Pod, want) {
		t.Errorf("have %+v\nwant %+v", f.Pod, want)
	}
	if !reflect.DeepEqual(before.Pod.Links[0], made) || before.Pod.Sysctls[0].Value != "1" {
		t.Error("the merge changed what it began with")
	}
}

// A route that moves is wanted in its new table only.
func TestMergeMovesRoutes(t *testing.T) {
	r := Route{Dst: prefix("::/0"), Gw: addr("fd00::1"), Link: "e"}
	otherTable, gone := r, r
	otherTable.Table, gone.Absent, gone.Metric, gone.Table = 7, true, 1024, 254
	f := Fragment{Pod: Space{Routes: []Route{r, otherTable, {Dst: r.Dst, Link: "f"}}}}
	before := f
	f.Merge(Fragment{Pod: Space{Routes: []Route{gone}}})
	if want := (List[Route]{otherTable, {Dst: r.Dst, Link: "f"}, gone}); !reflect.DeepEqual(f.Pod.Routes, want) {
		t.Errorf("have %v, want %v", f.Pod.Routes, want)
	}
	if !reflect.DeepEqual(before.Pod.Routes[0], r) {
		t.Error("the merge changed what it began with")
	}
}

func TestMergeAndEmpty(t *testing.T) {
	f := Fragment{Owner: "first", Host: full("a"), Pod: full("b"), Effects: []Effect{{Kind: Announce}}}
	f.Merge(Fragment{Owner: "second", Host: full("c"), Pod: full("d"), Effects: []Effect{{Kind: WaitDAD}}})
	if f.Owner != "first" || len(f.Effects) != 2 {
		t.Errorf("merged: %+v", f)
	}
	for _, name := range []SpaceName{Host, Pod} {
		v := reflect.ValueOf(f.Space(name)).Elem()
		for i := range v.NumField() {
			field := v.Type().Field(i).Name
			if n := v.Field(i).Len(); n != 2 {
				t.Errorf("%s: %d of %s after merge, want 2", name, n, field)
			}
			one := reflect.New(v.Type()).Elem()
			one.Field(i).Set(v.Field(i))
			if s := one.Interface().(Space); s.Empty() {
				t.Errorf("a space with %s is empty", field)
			}
		}
	}
	if !(Space{}).Empty() {
		t.Error("nothing is not empty")
	}
}

// TestFragmentSurvivesJSON: attachment records contain fragments.
func TestFragmentSurvivesJSON(t *testing.T) {
	want := Fragment{
		Owner: "o", Host: full("a"), Pod: full("b"), Effects: []Effect{
			{Kind: Announce, Space: Pod, Addrs: []netip.Addr{addr("::1")}},
		},
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var have Fragment
	if err := json.Unmarshal(b, &have); err != nil || !reflect.DeepEqual(want, have) {
		t.Errorf("%v\nhave %+v\nwant %+v", err, have, want)
	}
}
