// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/node/nodestatus"
)

// weft status of a healthy lab is good; what is wrong is named with its node, and a silent agent, too.
func TestStatus(t *testing.T) {
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "2", "--encapsulation", "vxlan", "--from", examples, "--dir", dir)
	must(t, "status", "--dir", dir, "--wait", "1m")
	if r := weft(t, "version", "--dir", dir); r.code != 0 || !strings.Contains(r.stdout, " on 2 of 2 nodes\n") {
		t.Errorf("weft version: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	now := func() (nodestatus.Cluster, int) {
		t.Helper()
		r := weft(t, "status", "--dir", dir, "-o", "json")
		return decode[nodestatus.Cluster](t, r.stdout), r.code
	}
	// On a busy host a check may not be finished in time; then it is not looked at, and the next answer has it.
	var c nodestatus.Cluster
	var code int
	if !sometime(time.Minute, func() bool {
		c, code = now()
		return code == 0 && c.Good && c.Nodes == 2 && c.Answered == 2 && c.Total.Attachments != 0 && c.Total.Unfinished == 0 &&
			c.Total.Peers == 2 && c.Total.Reached == 2 && c.Total.MTU == 1430 && c.Total.MaxConnections != 0 &&
			c.Total.Worst != nil && c.Total.Worst.MTU == 1430 && c.Total.Worst.Passes == 1430
	}) {
		t.Errorf("exit code %d, %+v", code, c)
	}
	finds := func(what, node, check, message string, code int) {
		t.Helper()
		within(t, time.Minute, what+" is found", func() bool {
			c, got := now()
			if got != code {
				return false
			}
			for _, f := range c.Findings {
				if f.Node == node && f.Check == check && strings.Contains(f.Message, message) {
					return true
				}
			}
			return false
		})
	}
	inNode := func(command string) { must(t, "lab", "exec", "--dir", dir, "node2", "--", "sh", "-c", command) }
	inNode("nft 'add table inet broken; add chain inet broken in { type filter hook input priority 0; }; " +
		"add rule inet broken in udp dport 8472 drop'")
	finds("a closed tunnel", "node1", "mesh ping", "encapsulation: peer node2 answers at", 1)
	inNode("nft 'flush table inet broken; add rule inet broken in udp dport 8472 udp length > 1000 drop'")
	finds("a narrow path", "node1", "mesh ping", "mtu: packets of 1430 bytes, the MTU of pods, do not reach peer node2", 1)
	inNode("nft delete table inet broken; sysctl -qw net.ipv4.conf.all.rp_filter=1")
	finds("a finding of weft doctor", "node2", "doctor kernel", "net.ipv4.conf.all.rp_filter is 1", 0)
	inNode("sysctl -qw net.ipv4.conf.all.rp_filter=0")
	policy := filepath.Join(dir, "store", "strange.yaml")
	text := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: strange, namespace: default}\n" +
		"spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{protocol: ICMP}]}]}\n"
	if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	finds("a policy that is not understood", "node1", "policy", "default/strange", 0)
	if err := os.Remove(policy); err != nil {
		t.Fatal(err)
	}
	// The agent restores it once; the second removal is left.
	for i := range 2 {
		must(t, "lab", "exec", "--dir", dir, "default/web", "--", "ip", "link", "set", "eth0", "down")
		if i == 0 {
			within(t, time.Minute, "eth0 is restored", func() bool { return isUp(t, dir, "default/web") })
		}
		time.Sleep(2 * time.Second)
	}
	finds("a pod's interface that is down", "node1", "attachments", "default/web", 1)
	killAgent(t, dir, "node2")
	finds("an agent that does not run", "node2", "agent", "does not answer", 1)
}
