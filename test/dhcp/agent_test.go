// SPDX-License-Identifier: Apache-2.0

package dhcp_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// agent starts weft's agent.
func (n *node) agent() *process {
	n.t.Helper()
	return n.start(filepath.Join(nettest.Programs(n.t), "weft-agent"), "ready\n", "agent", "--node", "n1", "--socket",
		n.path("agent.sock"), "--state-dir", n.path("agent"))
}

// The agent manages leases without a daemon, and continues with them after it is killed and restarted.
func TestAgent(t *testing.T) {
	const bridge, after = `"type":"bridge","bridge":"dbr0"`, `{"type":"loopback"}`
	for name, keys := range map[string]struct{ plugin, dhcp, after, want string }{
		"bridge":     {bridge, ``, after, "10.9.0."},
		"dual stack": {bridge, `,"ipv6":true`, after, "10.9.0. fd00:9::"},
		"IPv6":       {bridge, `,"ipv4":false,"ipv6":true`, after, "fd00:9::"},
		"chain": {
			bridge, ``, `{"type":"tuning","mtu":1400,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}},
				{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000}`, "10.9.0.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			bin := filepath.Join(nettest.Programs(t), "cni")
			agent := n.agent()
			conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":"weft-cni","socket":%q,"delegates":[{"plugins":[
				{%s,"ipam":{"type":"dhcp"%s}},%s]}]}`, n.path("agent.sock"), keys.plugin, keys.dhcp, keys.after)
			ns := n.pod(false)
			result := n.mustCall(bin, "weft-cni", "ADD", conf, "c1", ns)
			var r struct{ IPs []struct{ Address string } }
			if err := json.Unmarshal([]byte(result), &r); err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, ip := range r.IPs {
				have = append(have, ip.Address)
			}
			for _, want := range strings.Fields(keys.want) {
				if !strings.Contains(strings.Join(have, " "), want) {
					t.Errorf("addresses %v", have)
				}
			}
			if strings.Contains(keys.want, "10.9") {
				nettest.Run(t, ns, "ping", "-c1", "-W20", "10.9.0.1")
			}
			if link := nettest.Run(t, ns, "ip", "link", "show", "eth0"); name == "chain" && !strings.Contains(link, "mtu 1400") {
				t.Errorf("tuning: %s", link)
			}
			n.mustCall(bin, "weft-cni", "CHECK", withPrev(conf, result), "c1", ns)
			n.mustCall(bin, "weft-cni", "STATUS", conf, "", nil)
			agent.kill()
			agent = n.agent()
			if strings.Contains(keys.want, "10.9") {
				before := strings.Count(n.log.String(), "DHCPACK")
				n.until("a renewal", func() bool { return strings.Count(n.log.String(), "DHCPACK") > before })
			}
			n.mustCall(bin, "weft-cni", "CHECK", withPrev(conf, result), "c1", ns)
			n.mustCall(bin, "weft-cni", "DEL", withPrev(conf, result), "c1", ns)
			n.expectNoLeases("DEL")
			n.until("eth0 is deleted", func() bool {
				_, err := nettest.Try(ns, "ip", "link", "show", "eth0")
				return err != nil
			})
			agent.stop(15)
			if left, _ := filepath.Glob(n.path("agent/dhcp/*.json*")); len(left) > 0 {
				t.Errorf("leases left: %v", left)
			}
		})
	}
}

// Without a server the agent's ADD fails with that reason and leaves nothing.
func TestAgentFails(t *testing.T) {
	n := newNode(t)
	bin := filepath.Join(nettest.Programs(t), "cni")
	agent := n.agent()
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":"weft-cni","socket":%q,"delegates":[{"plugins":[
		{"type":"bridge","bridge":"dbr0","ipam":{"type":"dhcp","provide":[{"option":"hostname","value":"x"}]}}]}]}`, n.path("agent.sock"))
	ns := n.pod(false)
	out, err := n.call(bin, "weft-cni", "ADD", conf, "c1", ns)
	if err == nil || !strings.Contains(out, `ipam.provide[0].option \"hostname\" is no DHCP option`) {
		t.Errorf("ADD with a bad option: %v", err)
	}
	if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
		t.Errorf("eth0 is left: %s", out)
	}
	agent.stop(15)
}
