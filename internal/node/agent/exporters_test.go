// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/nettest"
)

// TestExporters: with observe.level flows an agent writes connections with the names of their ends and their packets to a
// file, also when another receiver is not there, which it logs once. The next agent, without it, restores the setting that
// counts packets, writes nothing and has no metrics of it.
func TestExporters(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "encapsulation: host-gw")
	n1, n2 := p.nodes[0], p.nodes[1]
	const accounting = "/proc/sys/net/netfilter/nf_conntrack_acct"
	nettest.Run(t, n1.node, "sh", "-c", "echo 0 >"+accounting)
	restart := func(observe string) {
		t.Helper()
		n1.stop()
		n1.configured(fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: cluster, encapsulation: host-gw, masquerade: true, clusterCIDRs: [10.99.0.0/16]}\nmetrics: {address: '127.0.0.1:9119'}\n%s",
			n1.path("net.d"), observe))
		n1.start()
	}
	path := n1.path("flows.json")
	restart(fmt.Sprintf("observe: {level: flows, file: {path: %q}, ipfix: {address: 'tcp://127.0.0.1:1'}}\n", path))
	list := n1.ownList()
	pod1, _ := n1.shopPod(list, "web", nettest.NS(t, "web"))
	_, addrs2 := p.pod(n2, "pod2")
	written := func() (out []flow.Record) {
		b, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var r flow.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil && strings.HasSuffix(line, "\n") {
				t.Fatalf("%v: %s", err, line)
			}
			out = append(out, r)
		}
		return out
	}
	p.until("a connection is in the file", func() bool {
		p.reaches(pod1, addrs2) // the agent may not observe yet
		for _, r := range written() {
			if r.Time.IsZero() {
				continue // the line is being written
			}
			if r.Kind == flow.New && r.Protocol == "icmp" && r.From.Name == "shop/web" && r.To.Addr == addrs2[0] {
				return true
			}
		}
		return false
	})
	served := func(what string) bool { return strings.Contains(n1.web("GET /metrics HTTP/1.0"), what) }
	p.until("sent flows are counted", func() bool {
		return served(`weft_flows_exported_total{receiver="IPFIX tcp://127.0.0.1:1"} 0`) &&
			served(fmt.Sprintf("weft_flows_exported_total{receiver=%q} ", "file "+path))
	})
	p.until("the receiver that is not there is logged", func() bool {
		return strings.Count(n1.log(), "receiver of flows does not take them") == 1
	})
	if got := strings.TrimSpace(nettest.Run(t, n1.node, "cat", accounting)); got != "1" {
		t.Errorf("nf_conntrack_acct is %s with the level flows", got)
	}
	restart("")
	before := len(written())
	p.reaches(pod1, addrs2)
	p.until("the setting is restored", func() bool {
		return strings.TrimSpace(nettest.Run(t, n1.node, "cat", accounting)) == "0"
	})
	if served("weft_flows") || len(written()) != before {
		t.Errorf("without a receiver: %d flows are written, %d before; %s", len(written()), before, n1.web("GET /metrics HTTP/1.0"))
	}
}
