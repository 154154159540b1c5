// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// outside connects the node to a namespace that acts as an external host.
func outside(t *testing.T) {
	t.Helper()
	world := nettest.NS(t, "world")
	nettest.Run(t, nil, "ip", "link", "add", "fwwire", "type", "veth", "peer", "name", "eth0", "netns", world.Path())
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "fwwire") })
	nettest.Run(t, nil, "ip", "addr", "add", "192.0.2.1/24", "dev", "fwwire")
	nettest.Run(t, nil, "ip", "link", "set", "fwwire", "up")
	nettest.Run(t, world, "ip", "addr", "add", "192.0.2.2/24", "dev", "eth0")
	nettest.Run(t, world, "ip", "link", "set", "eth0", "up")
	nettest.Run(t, world, "ip", "route", "add", "default", "via", "192.0.2.1")
}

// TestFirewallWithFirewalld attaches pods behind a firewalld that accepts only sources in a trusted zone: it is
// detected, as by the reference plugin.
func TestFirewallWithFirewalld(t *testing.T) {
	fw := nettest.Firewalld(t, nil)
	t.Cleanup(func() { _, _ = nettest.Try(nil, "nft", "flush", "ruleset") })
	h := newHost(t)
	sweepBridges(t)
	outside(t)
	weft := func(name, verb, conf string, g *guarded) string {
		return h.must(name, verb, conf, g.ns, "CNI_CONTAINERID="+g.name).stdout
	}
	for name, tc := range map[string]struct{ options, zone string }{
		"found":  {"", "trusted"},
		"asked":  {`,"backend":"firewalld"`, "trusted"},
		"a zone": {`,"backend":"firewalld","firewalldZone":"internal"`, "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guarded{name: "pod", bridge: "fwbr1"}
			g.ns = nettest.NS(t, "bare")
			guard(t, h, func(string, string, string, *guarded) string { return g.prev }, g, 0, tc.options)
			reaches := func(want bool) bool {
				_, err := nettest.Try(g.ns, "ping", "-c1", patience[want], "192.0.2.2")
				return err == nil
			}
			if reaches(false) {
				t.Fatal("firewalld lets a pod through that is in no zone")
			}
			weft("firewall", "ADD", g.conf, g)
			if want := tc.zone == "trusted"; reaches(want) != want {
				t.Errorf("the world is reached: %t, want %t", !want, want)
			}
			list := func() string { return fw.Cmd("--zone="+tc.zone, "--list-sources") }
			if got := list(); got != g.v4+"/32 "+g.v6+"/128" {
				t.Errorf("sources of the zone: %q", got)
			}
			if out := nettest.Run(t, nil, "nft", "list", "tables"); strings.Contains(out, "weft_firewall") {
				t.Errorf("tables beside firewalld's: %s", out)
			}
			weft("firewall", "CHECK", g.conf, g)
			fw.Cmd("--reload")
			if a := h.call("firewall", "CHECK", g.conf, g.ns, "CNI_CONTAINERID="+g.name); a.code() != 102 ||
				!strings.Contains(a.stdout, "missing firewalld zone "+tc.zone+" source "+g.v4+"/32") {
				t.Errorf("CHECK after a reload: %s", a.stdout)
			}
			weft("firewall", "DEL", g.conf, g)
			weft("firewall", "ADD", g.conf, g)
			weft("firewall", "STATUS", strings.ReplaceAll(g.conf, "1.0.0", "1.1.0"), g)
			weft("firewall", "DEL", g.conf, g)
			if got := list(); got != "" {
				t.Errorf("sources after DEL: %q", got)
			}
			if bin := os.Getenv("WEFT_PEER_BIN_DIR"); bin != "" { // one removes what the other added
				h.peerOf(bin, "firewall", "ADD", g.conf, g.ns, g.name)
				weft("firewall", "DEL", g.conf, g)
				if got := list(); got != "" {
					t.Errorf("sources of the reference after weft's DEL: %q", got)
				}
			}
			h.must("bridge", "DEL", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name)
		})
	}
}

// TestFirewallWithoutFirewalld configures firewalld on a node without it.
func TestFirewallWithoutFirewalld(t *testing.T) {
	h := newHost(t)
	c := `{"cniVersion":"1.1.0","name":"n","type":"firewall","backend":"firewalld"}`
	if _, err := os.Stat("/run/dbus/system_bus_socket"); err == nil {
		nettest.SkipMissing(t, "this host has a D-Bus of its own")
	}
	if a := h.call("firewall", "STATUS", c, nil); a.code() != 50 ||
		!strings.Contains(a.stdout, "firewalld is not on the system's D-Bus") {
		t.Errorf("STATUS: %s", a.stdout)
	}
	ns := nettest.NS(t, "c1")
	prev := h.must("ptp", "ADD", conf("1.0.0", "ptp", routed), ns).stdout
	if a := h.call("firewall", "ADD", with(prev, c), ns); a.exit == 0 ||
		!strings.Contains(a.stdout, "firewalld zone trusted source 10.6.0.") {
		t.Errorf("ADD: %s", a.stdout)
	}
	h.must("firewall", "DEL", with(prev, c), ns)
	h.must("ptp", "DEL", conf("1.0.0", "ptp", routed), ns)
}

// TestFirewallWhereForwardDrops attaches a pod on a node whose iptables drop by default, as with Docker: accept in
// weft's own table does not override that.
func TestFirewallWhereForwardDrops(t *testing.T) {
	t.Cleanup(func() { _, _ = nettest.Try(nil, "nft", "flush", "ruleset") })
	h := newHost(t)
	sweepBridges(t)
	outside(t)
	nettest.Run(t, nil, "iptables", "-P", "FORWARD", "DROP")
	for options, want := range map[string]bool{"": true, `,"backend":"iptables"`: true, `,"backend":"nftables"`: false} {
		g := &guarded{name: "pod", bridge: "fwbr1"}
		guard(t, h, func(name, verb, conf string, g *guarded) string {
			return h.must(name, verb, conf, g.ns, "CNI_CONTAINERID="+g.name).stdout
		}, g, 0, options)
		if _, err := nettest.Try(g.ns, "ping", "-c1", patience[want], "192.0.2.2"); (err == nil) != want {
			t.Errorf("with %q the world is reached: %t, want %t", options, err == nil, want)
		}
		h.must("firewall", "DEL", g.conf, g.ns, "CNI_CONTAINERID="+g.name)
		h.must("bridge", "DEL", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name)
		if out := nettest.Run(t, nil, "iptables-save"); strings.Contains(out, g.v4) {
			t.Errorf("left: %s", out)
		}
	}
}
