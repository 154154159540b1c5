// SPDX-License-Identifier: Apache-2.0

package leaks_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestRepair: what somebody flushes on the node is there again within a second, while the agent runs.
func TestRepair(t *testing.T) {
	if os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
		t.Skip("no agent, no repair")
	}
	n := newNode(t, true)
	for range 20 {
		if err := n.add(n.pod()); err != nil {
			t.Fatal(err)
		}
	}
	before := n.look()
	for name, vandal := range map[string][]string{
		"flush": {"nft flush ruleset"},
		// A firewall's reload empties what it finds and fills in its own.
		"reload": {
			"nft flush ruleset", "nft add table inet firewalld",
			"nft add chain inet firewalld c { type filter hook input priority 10; }",
		},
		"twice": {"nft flush ruleset", "sleep 0.2", "nft flush ruleset"},
	} {
		t.Run(name, func(t *testing.T) {
			var left []string
			for range 6 { // a machine that is busy has several tries
				if left = n.harmed(before, vandal); len(left) == 0 {
					return
				}
			}
			t.Errorf("a second later: %s", left)
		})
	}
	if err := n.check(n.keeper); err != nil {
		t.Error(err)
	}
}

// harmed does what a vandal does, and says what is not repaired a second later. In the end everything must be.
func (n *node) harmed(before things, vandal []string) (late []string) {
	n.t.Helper()
	for _, line := range vandal {
		nettest.Run(n.t, nil, "sh", "-c", strings.ReplaceAll(strings.ReplaceAll(line, "{", `'{`), "}", `}'`))
	}
	_, left := n.leaked(before, time.Second)
	_, _ = nettest.Try(nil, "nft", "delete", "table", "inet", "firewalld")
	for _, what := range left {
		if !strings.Contains(what, "firewalld") {
			late = append(late, what)
		}
	}
	if _, left := n.leaked(before, 20*time.Second); len(left) > 0 {
		n.t.Fatalf("not repaired at all: %s", left)
	}
	return late
}
