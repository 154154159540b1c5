// SPDX-License-Identifier: Apache-2.0

package leaks_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestRepair: a running agent repairs what is flushed on the node within a second.
func TestRepair(t *testing.T) {
	if os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
		t.Skip("no agent, no repair")
	}
	n := newNode(t, true)
	for range 20 {
		n.mustAdd(n.pod())
	}
	before := n.takeSnapshot()
	for name, commands := range map[string][]string{
		"flush": {"nft flush ruleset"},
		// A firewall's reload flushes all rules and writes its own.
		"reload": {
			"nft flush ruleset", "nft add table inet firewalld",
			"nft add chain inet firewalld c { type filter hook input priority 10; }",
		},
		"twice": {"nft flush ruleset", "sleep 0.2", "nft flush ruleset"},
	} {
		t.Run(name, func(t *testing.T) {
			var left []string
			for range 6 { // several tries for a busy host
				if left = n.disturb(before, commands); len(left) == 0 {
					return
				}
			}
			t.Errorf("after a second: %s", left)
		})
	}
	if err := n.check(n.other); err != nil {
		t.Error(err)
	}
}

// disturb runs commands that cause drift, and returns what is not repaired after a second. Finally all must be
// repaired.
func (n *node) disturb(before objects, commands []string) (late []string) {
	n.t.Helper()
	for _, line := range commands {
		nettest.Run(n.t, nil, "sh", "-c", strings.ReplaceAll(strings.ReplaceAll(line, "{", `'{`), "}", `}'`))
	}
	_, left := n.leaks(before, time.Second)
	_, _ = nettest.Try(nil, "nft", "delete", "table", "inet", "firewalld")
	for _, what := range left {
		if !strings.Contains(what, "firewalld") {
			late = append(late, what)
		}
	}
	if _, left := n.leaks(before, 20*time.Second); len(left) > 0 {
		n.t.Fatalf("not repaired: %s", left)
	}
	return late
}
