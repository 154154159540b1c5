// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestSmallExternalChanges changes routes, rules, neighbors and settings, one at a time, in both namespaces. Diff
// reports the change, and the next Apply repairs it.
func TestSmallExternalChanges(t *testing.T) {
	f := canned()["routes"]
	f.Host.Neighs = canned()["neighbors"].Host.Neighs
	f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv4/conf/eth0/rp_filter", Value: "2"},
		state.Sysctl{Name: "net/ipv6/conf/eth0/accept_ra", Value: "0"})
	s := pair(t)
	mustApply(t, s, f)
	for _, act := range []struct{ in, do, names string }{
		{"host", "ip route del 10.1.0.1/32", "10.1.0.1/32"},
		{"host", "ip -6 route del fd00:1::3/128 dev veth0001", "fd00:1::3/128"},
		{"host", "ip neigh del 10.1.0.1 dev veth0001", "10.1.0.1"},
		{"host", "ip neigh replace fd00:1::3 lladdr 02:00:00:00:00:99 dev veth0001 nud permanent", "fd00:1::3"},
		{"host", "ip neigh replace 10.1.0.1 lladdr 02:00:00:00:00:99 dev veth0001 nud stale", "10.1.0.1"},
		{"host", "ip neigh del proxy fd00:9::9 dev veth0001", "fd00:9::9"},
		{"host", "ip addr del 10.1.255.1/32 dev veth0001", "10.1.255.1/32"},
		{"host", "ip link set veth0001 alias weft:net/1/eth0 mtu 1200", "mtu"},
		{"host", "sysctl -qw net.ipv4.conf.veth0001.proxy_arp=0", "proxy_arp"},
		{"pod", "ip route replace default via 10.1.255.1 dev eth0 proto 119 mtu 1000", "0.0.0.0/0"},
		{"pod", "ip route replace blackhole 203.0.113.0/24 table 1000 proto 119", "203.0.113.0/24"},
		{"pod", "ip route flush table 1000", "203.0.113.0/24"},
		{"pod", "ip -6 route del blackhole 2001:db8:1::/48", "2001:db8:1::/48"},
		{"pod", "ip rule del pref 500", "rule 500"},
		{"pod", "ip -6 rule del pref 501", "rule 501"},
		{"pod", "ip rule del pref 502", "rule 502"},
		{"pod", "ip addr del fd00:1::3/64 dev eth0", "fd00:1::3/64"},
		{"pod", "ip link set eth0 down", "eth0"},
		{"pod", "ip link set eth0 address 02:00:00:00:00:77", "mac"},
		{"pod", "sysctl -qw net.ipv4.conf.eth0.rp_filter=0", "rp_filter"},
		{"pod", "sysctl -qw net.ipv6.conf.eth0.accept_ra=1", "accept_ra"},
		{"pod", "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1", "fd00:1::3/64"},
	} {
		ns := s.Host.ns
		if act.in == "pod" {
			ns = s.Pod.ns
		}
		nettest.Run(t, ns, strings.Fields(act.do)...)
		d, err := s.Diff(t.Context(), f)
		text := ""
		for _, one := range d {
			text += one.String() + "\n"
		}
		if err != nil || !strings.Contains(text, act.in+": ") || !strings.Contains(text, act.names) {
			t.Errorf("%s: not seen, want %s: %v\n%s", act.do, act.names, err, text)
		}
		if err := s.Apply(t.Context(), f); err != nil {
			t.Fatalf("after %s: %v", act.do, err)
		}
		wantSame(t, s, f)
	}
}
