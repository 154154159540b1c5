// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/nettest"
)

// TestCalico: what Calico has left goes; its pods' ways, and what others made, stay. (test/calico does it with Calico's
// own programs.)
func TestCalico(t *testing.T) {
	nettest.Need(t, "vxlan")
	ns := nettest.NS(t, "node")
	run := func(lines ...string) {
		t.Helper()
		for _, l := range lines {
			nettest.Run(t, ns, strings.Fields(l)...)
		}
	}
	run("ip link set lo up", "ip link add eth0 type veth peer name far0", "ip addr add 192.168.7.1/24 dev eth0",
		"ip link set eth0 up", "ip link set far0 up",
		"ip link add cali0123456789a type veth peer name pod0", "ip link set cali0123456789a up", "ip link set pod0 up",
		"ip link add vxlan.calico type vxlan id 4096 dstport 4789 local 192.168.7.1", "ip link set vxlan.calico up",
		"ip route add 10.0.0.1/32 dev cali0123456789a proto 80", "ip route add blackhole 10.0.0.0/26 proto 80",
		"ip route add 10.0.1.0/26 via 10.0.1.0 dev vxlan.calico onlink", "ip route add 10.0.2.0/26 via 192.168.7.2 proto 80",
		"ip route add 10.0.3.0/26 via 192.168.7.3 proto 12", "ip route add 10.0.4.0/26 via 192.168.7.4",
		"nft add table ip calico", "nft add chain ip calico filter-FORWARD", "nft add table ip users",
		"nft add chain ip users calico")
	want := []string{
		"route 10.0.0.0/26 blackhole", "route 10.0.1.0/26 dev vxlan.calico", "route 10.0.2.0/26 dev eth0",
		"route 10.0.3.0/26 dev eth0",
		"nft table ip calico", "link vxlan.calico",
	}
	if _, err := exec.LookPath("iptables-nft"); err == nil {
		run("iptables-nft -N cali-FORWARD", "iptables-nft -N users", "iptables-nft -A cali-FORWARD -j DROP",
			"iptables-nft -A FORWARD -m comment --comment cali:abc -j cali-FORWARD",
			"iptables-nft -A FORWARD -m comment --comment cali:def -m mark --mark 0x10000/0x10000 -j ACCEPT",
			"iptables-nft -A FORWARD -m comment --comment mine -j users")
		want = slices.Insert(want, 4, "iptables table filter")
	}
	if _, err := nettest.Try(ns, "ipset", "create", "cali40s:x", "hash:net"); err == nil {
		run("ipset create users hash:net")
		want = slices.Insert(want, len(want)-1, "ipset cali40s:x")
	}
	host, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	found, err := FindCalico(t.Context(), host)
	lines := found.Lines()
	slices.SortFunc(lines[:4], strings.Compare)
	if d := cmp.Diff(want, lines); err != nil || d != "" {
		t.Fatalf("%v, -want +found:\n%s", err, d)
	}
	for range 2 { // a second time nothing is there, and that is no error
		if err := found.Remove(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	if found, err = FindCalico(t.Context(), host); err != nil || len(found.Lines()) > 0 {
		t.Errorf("%v, left: %v", err, found.Lines())
	}
	for cmd, stays := range map[string][]string{
		"ip route": {"10.0.0.1 dev cali0123456789a", "10.0.4.0/26 via 192.168.7.4"}, "nft list ruleset": {"table ip users"},
		"ip link": {"cali0123456789a"},
	} {
		out := nettest.Run(t, ns, strings.Fields(cmd)...)
		for _, s := range stays {
			if !strings.Contains(out, s) {
				t.Errorf("%s: no %q in\n%s", cmd, s, out)
			}
		}
	}
	if slices.Contains(want, "iptables table filter") {
		if out := nettest.Run(t, ns, "iptables-nft", "-S"); !strings.Contains(out,
			"-A FORWARD -m comment --comment mine -j users") || strings.Contains(out, "cali") {
			t.Errorf("iptables-nft -S:\n%s", out)
		}
	}
	if slices.Contains(want, "ipset cali40s:x") &&
		strings.TrimSpace(nettest.Run(t, ns, "ipset", "list", "-n")) != "users" {
		t.Error("the others' ipset has gone")
	}
}
