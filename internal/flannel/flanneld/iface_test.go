// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/state"
)

func linksOf(t *testing.T, defaults map[int]string, links ...any) hostLinks {
	t.Helper()
	m := hostLinks{defaults: defaults}
	for _, v := range links {
		switch v := v.(type) {
		case string:
			m.Links = append(m.Links, state.Link{Name: v})
		case netip.Prefix:
			m.Addrs = append(m.Addrs, state.Addr{Link: m.Links[len(m.Links)-1].Name, Prefix: v})
		}
	}
	return m
}

// TestChoose: which interface is chosen, and why none is.
func TestChoose(t *testing.T) {
	p := netip.MustParsePrefix
	m := linksOf(t, map[int]string{4: "eth0", 6: "eth1"}, "lo", p("127.0.0.1/8"), "eth0", p("169.254.1.1/16"),
		p("192.168.0.1/24"), p("fd00::1/64"),
		"eth1", p("10.0.0.1/8"), p("10.0.0.2/8"), p("fe80::2/64"), p("fd01::2/64"), "tun0")
	m.reach = "eth1"
	const there = " (there are lo (127.0.0.1), eth0 (169.254.1.1 192.168.0.1 fd00::1), eth1 (10.0.0.1 10.0.0.2 fe80::2 fd01::2), tun0 ())"
	for _, tt := range []struct {
		o        Options
		families []int
		public   string
		want     string
	}{
		{Options{}, []int{4}, "", "eth0 [192.168.0.1] []"},
		{Options{}, []int{6}, "", "eth1 [fd01::2] []"},
		{Options{}, []int{4}, "10.0.0.2", "eth1 [10.0.0.2] [10.0.0.2]"},
		{Options{}, []int{4}, "203.0.113.1", "eth0 [192.168.0.1] [203.0.113.1]"},
		{Options{Ifaces: []string{"eth9", "eth1"}}, []int{4}, "", "eth1 [10.0.0.1] []"},
		{Options{Ifaces: []string{"10.0.0.2"}}, []int{4, 6}, "", "eth1 [10.0.0.2 fd01::2] []"},
		{Options{IfaceRegexes: []string{`10\..*\.2`}}, []int{4}, "", "eth1 [10.0.0.2] []"},
		{Options{IfaceRegexes: []string{`^eth`}}, []int{4}, "", "eth0 [192.168.0.1] []"},
		{
			Options{Ifaces: []string{"eth9"}, IfaceRegexes: []string{"x"}, IfaceCanReach: "10.9.9.9"},
			[]int{4},
			"",
			"eth1 [10.0.0.1] []",
		},
		{
			Options{},
			[]int{
				4, 6,
			},
			"",
			"no interface to the other nodes: default route: that of IPv4 leads over eth0, that of IPv6 over eth1; name one with --iface" + there,
		},
		{
			Options{Ifaces: []string{"eth9", "10.9.9.9", "tun0"}, IfaceRegexes: []string{"wlan"}},
			[]int{4},
			"",
			"no interface to the other nodes: --iface eth9: there is no interface of that name; --iface 10.9.9.9: no interface has that address; " +
				"--iface tun0: tun0 has no IPv4 address; --iface-regex wlan: neither a name nor an address matches" + there,
		},
	} {
		var public []netip.Addr
		if tt.public != "" {
			public = append(public, netip.MustParseAddr(tt.public))
		}
		u, err := tt.o.choose(m, tt.families, public)
		got := fmt.Sprint(u.Link, " ", u.Addrs, " ", u.Public)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v %v %s:\n%s\nwant %s", tt.o, tt.families, tt.public, got, tt.want)
		}
	}
	m.defaults, m.reach = map[int]string{}, ""
	for want, o := range map[string]Options{
		"no interface to the other nodes: default route: there is none of IPv4; name an interface with --iface" + there: {},
		"no interface to the other nodes: --iface-can-reach 10.9.9.9: no route leads there" +
			there: {IfaceCanReach: "10.9.9.9"},
	} {
		if _, err := o.choose(m, []int{4}, nil); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}
