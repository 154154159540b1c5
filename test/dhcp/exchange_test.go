// SPDX-License-Identifier: Apache-2.0

package dhcp_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// Every dhcp plugin works with every daemon: the reference plugin with weft's daemon, and weft's plugin with the
// reference's.
func TestPluginsAndDaemons(t *testing.T) {
	for _, tc := range []struct {
		daemon string
		peer   bool
	}{{"weft", false}, {"weft-plugin", false}, {"weft", true}, {"reference", false}} {
		name := tc.daemon + " daemon, weft plugin"
		if tc.peer {
			name = tc.daemon + " daemon, reference plugin"
		}
		t.Run(name, func(t *testing.T) {
			bin := filepath.Join(nettest.Programs(t), "cni")
			if tc.peer {
				bin = referenceDir(t)
			}
			n := newNode(t)
			n.daemon(tc.daemon)
			for _, version := range []string{"0.4.0", "1.0.0"} {
				ns := n.pod(true)
				conf := n.conf(version, "dhcp", "")
				result := n.mustCall(bin, "dhcp", "ADD", conf, "c1", ns)
				var r struct {
					CNIVersion string
					IPs        []struct{ Address, Gateway string }
					Routes     []struct{ Dst, GW string }
					DNS        struct{ Nameservers []string }
				}
				if err := json.Unmarshal([]byte(result), &r); err != nil {
					t.Fatal(err)
				}
				if r.CNIVersion != version || len(r.IPs) != 1 || !strings.HasPrefix(r.IPs[0].Address, "10.9.0.") ||
					r.IPs[0].Gateway != "10.9.0.1" ||
					len(r.Routes) != 1 || r.Routes[0].Dst != "0.0.0.0/0" || r.Routes[0].GW != "10.9.0.1" {
					t.Errorf("result %s", result)
				}
				if dns := strings.Join(r.DNS.Nameservers, " "); tc.daemon != "reference" && dns != "10.9.0.53" {
					t.Errorf("name servers %q", dns)
				}
				if addr, _, _ := strings.Cut(r.IPs[0].Address, "/"); n.leased() != addr {
					t.Errorf("the server leased %s, the plugin returned %s", n.leased(), addr)
				}
				if again := n.mustCall(bin, "dhcp", "ADD", conf, "c1", ns); again != result {
					t.Errorf("a repeated ADD: %s", again)
				}
				n.mustCall(bin, "dhcp", "CHECK", withPrev(conf, result), "c1", ns)
				for range 2 {
					n.mustCall(bin, "dhcp", "DEL", withPrev(conf, result), "c1", ns)
				}
				if tc.daemon == "reference" { // its DHCPRELEASE is not sent without the address on the interface
					n.until("DEL", func() bool { return strings.Contains(n.log.String(), "releasing lease") })
					return
				}
				n.expectNoLeases("DEL")
			}
		})
	}
}

// The verbs that the reference plugin lacks, and errors without a daemon.
func TestVerbs(t *testing.T) {
	n := newNode(t)
	bin := filepath.Join(nettest.Programs(t), "cni")
	conf := n.conf("1.1.0", "dhcp", "")
	ns := n.pod(true)
	wants := func(verb, id string, words ...string) {
		t.Helper()
		out, err := n.call(bin, "dhcp", verb, conf, id, ns)
		for _, w := range words {
			if err == nil || !strings.Contains(out, w) {
				t.Errorf("%s: %v, %q is missing in %s", verb, err, w, out)
			}
		}
	}
	wants("STATUS", "", `"code": 50`, "no daemon at ipam.daemonSocketPath", "weft dhcp daemon")
	wants("ADD", "c1", `"code": 11`, "no daemon at ipam.daemonSocketPath", "weft dhcp daemon")
	n.mustCall(bin, "dhcp", "DEL", conf, "c1", ns)
	if !strings.Contains(n.log.String(), "dhcp daemon did not release the lease") {
		t.Error("DEL without a daemon prints nothing")
	}
	daemon := n.daemon("weft")
	n.mustCall(bin, "dhcp", "STATUS", conf, "", nil)
	result := n.mustCall(bin, "dhcp", "ADD", conf, "c1", ns)
	n.mustCall(bin, "dhcp", "ADD", conf, "c2", n.pod(true))
	valid := strings.Replace(conf, "{", `{"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}],`, 1)
	n.mustCall(bin, "dhcp", "GC", valid, "", nil)
	n.until("GC", func() bool { return len(strings.Fields(n.leased())) == 1 })
	n.mustCall(bin, "dhcp", "CHECK", withPrev(conf, result), "c1", ns)
	n.mustCall(bin, "dhcp", "DEL", conf, "c1", ns)
	conf = withPrev(conf, result)
	wants("CHECK", "c1", `"code": 102`, "no lease is kept")
	n.expectNoLeases("DEL")
	daemon.stop(15)
	if left, _ := filepath.Glob(n.path("state/*.json")); len(left) > 0 {
		t.Errorf("leases left: %v", left)
	}
}

// Main plugins with dhcp: weft's with weft's, and each with the other's.
func TestMainPlugins(t *testing.T) {
	weft := filepath.Join(nettest.Programs(t), "cni")
	for name, tc := range map[string]struct{ main, ipam, keys string }{
		"weft bridge":                             {"weft", "weft", bridged},
		"weft bridge, ipMasq":                     {"weft", "weft", bridged + `,"ipMasq":true,"ipMasqBackend":"nftables"`},
		"reference bridge with weft dhcp":         {"reference", "weft", bridged},
		"reference bridge with both of reference": {"reference", "reference", bridged},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			bin := weft
			if tc.main == "reference" {
				bin = mixedBinDir(t, n, weft, tc.ipam)
			}
			n.daemon("weft")
			ns := n.pod(false)
			conf := n.conf("1.0.0", "bridge", tc.keys)
			result := n.mustCall(bin, "bridge", "ADD", conf, "c1", ns)
			nettest.Run(t, ns, "ping", "-c1", "-W20", "10.9.0.1")
			if out := nettest.Run(t, ns, "ip", "route"); !strings.Contains(out, "default via 10.9.0.1") {
				t.Errorf("routes: %s", out)
			}
			n.mustCall(bin, "bridge", "CHECK", withPrev(conf, result), "c1", ns)
			n.until("a renewal", func() bool { return strings.Count(n.log.String(), "DHCPACK") > 1 })
			n.mustCall(bin, "bridge", "DEL", withPrev(conf, result), "c1", ns)
			n.expectNoLeases("DEL")
			if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
				t.Errorf("eth0 is left: %s", out)
			}
		})
	}
}

// mixedBinDir returns a CNI binary directory with bridge and dhcp of different vendors.
func mixedBinDir(t *testing.T, n *node, weft, ipam string) string {
	t.Helper()
	from := map[string]string{"bridge": referenceDir(t), "dhcp": weft}
	if ipam == "reference" {
		from["dhcp"] = referenceDir(t)
	}
	bin := n.path("bin")
	for name, dir := range from {
		nettest.Run(t, nil, "mkdir", "-p", bin)
		nettest.Run(t, nil, "ln", "-s", filepath.Join(dir, name), filepath.Join(bin, name))
	}
	return bin
}
