// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/node/nodestatus"
)

// words returns the rows and findings of a cluster.
func words(c nodestatus.Cluster) string {
	var out strings.Builder
	for _, r := range c.Rows() {
		fmt.Fprintf(&out, "%s: %s\n", r.Name, r.Text)
	}
	for _, f := range c.FindingTexts() {
		fmt.Fprintf(&out, "%s: %s: %s\n", f.Level, f.Where, f.What)
		if f.Hint != "" {
			fmt.Fprintf(&out, "  hint: %s\n", f.Hint)
		}
	}
	return out.String()
}

// A thousand nodes are summed up; silent ones and findings are named, worst first.
func TestMerge(t *testing.T) {
	var all []nodestatus.Status
	for i := range 1000 {
		s := nodestatus.Status{
			Node: fmt.Sprintf("node%d", i+1), Version: "v1", Attachments: 20, Peers: 999, Reached: 999, MTU: 1450, Policies: 14,
			Denied: 2, Blocks: 1, Free: 40, Allocated: 20, Connections: i, MaxConnections: 10000, Repairs: 1,
		}
		if i == 9 {
			s.MTU, s.Reached = 1400, 998
			s.Findings = []nodestatus.Finding{{Level: nodestatus.Warn, Check: "policy", Message: "not understood"}}
		}
		all = append(all, s)
	}
	c := nodestatus.Merge(all, nil, nodestatus.Shared{})
	total := c.Total
	if !c.Good || c.Nodes != 1000 || c.Answered != 1000 || total.Attachments != 20000 || total.Peers != 999000 ||
		total.Reached != 998999 || total.MTU != 1400 || total.Policies != 14 || total.Denied != 2000 || total.Free != 40000 ||
		c.Fullest != "node1000" || total.Connections != 999 || total.Repairs != 1000 || len(c.Findings) != 1 ||
		c.Findings[0].Node != "node10" || c.Statuses[1].Node != "node2" {
		t.Errorf("%+v, findings %+v", total, c.Findings)
	}
	all[0].Findings = []nodestatus.Finding{{Level: nodestatus.Bad, Check: "mesh", Message: "down"}}
	all[1].Version = "v2"
	c = nodestatus.Merge(all, map[string]string{"node2000": "no answer"}, nodestatus.Shared{})
	text := words(c)
	if c.Good || c.Nodes != 1001 || len(c.Findings) != 4 {
		t.Errorf("good %v, %d nodes, %+v", c.Good, c.Nodes, c.Findings)
	}
	at := 0
	for _, want := range []string{
		"1000 of 1001 answer, version v1 (999), v2 (1)", "bad: node1: mesh: down", "bad: node2000: agent: the agent does not answer: no answer",
		"warn: cluster: agent: agents have several versions", "warn: node10: policy: not understood",
	} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or not in order:\n%s", want, text)
		}
		at += i
	}
}

// Nothing is good where no agent answers.
func TestNoAgents(t *testing.T) {
	if c := nodestatus.Merge(nil, nil, nodestatus.Shared{}); c.Good {
		t.Error("good without an agent")
	}
}

// What was not checked is last and is not good news: it is printed, once for all nodes that have it. Pools are summed up
// by name, and the worst path is the one with a fault.
func TestMergeDetails(t *testing.T) {
	skip := nodestatus.Finding{Level: nodestatus.Skip, Check: "doctor disk", Message: "the time ran out"}
	var all []nodestatus.Status
	for i := range 5 {
		all = append(all, nodestatus.Status{
			Node: fmt.Sprintf("node%d", i+1), Version: "v1", Attachments: 4, Pending: 1, Releasing: 1, Unfinished: 2, Broken: 1,
			Migrations: 1, VMs: 2, DeniedPerMinute: 6, Findings: []nodestatus.Finding{skip},
			Pools: []nodestatus.Pool{{Name: "p", Blocks: 1, Free: 3, Allocated: 2}},
			Worst: &nodestatus.Path{Node: fmt.Sprintf("node%d", i+1), Peer: "x", MTU: 1450, Passes: 1300 + i},
		})
	}
	all[3].Worst.Fault = "mtu"
	c := nodestatus.Merge(all, nil, nodestatus.Shared{
		Pools: []nodestatus.Pool{
			{Name: "p", Size: big.NewInt(256), Left: big.NewInt(246)}, {Name: "six", Size: new(big.Int).Lsh(big.NewInt(1), 64)},
		},
		Findings: []nodestatus.Finding{{Level: nodestatus.Warn, Check: "ipam check", Message: "a leak", Hint: "fix it"}},
	})
	text := words(c)
	want := `agents: 5 of 5 answer, version v1 (5)
attachments: 20 of pods: 5 with network, 5 broken, 5 pending, 5 being removed
worst path: node4 to x: 1303 of 1450 bytes pass, mtu fault
policies: 0, 0 not enforced in full, 0 packets denied, 30 per minute now
pool p: 5 blocks of nodes, 10 addresses used, 15 free; 246 of 256 left in the pool
pool six: 0 blocks of nodes, 0 addresses used, 0 free
VMs: 10, 5 migrating
repairs: 0 since the agents' start
warn: cluster: ipam check: a leak
  hint: fix it
skip: node1, node2, node3 and 2 more nodes: doctor disk: the time ran out
`
	if !c.Good || text != want {
		t.Errorf("good %v:\n%s", c.Good, text)
	}
}
