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
		"reload": {"nft flush ruleset", "nft add table inet firewalld", "nft add chain inet firewalld c { type filter hook input priority 10; }"},
		"twice":  {"nft flush ruleset", "sleep 0.2", "nft flush ruleset"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, line := range vandal {
				nettest.Run(t, nil, "sh", "-c", strings.ReplaceAll(strings.ReplaceAll(line, "{", `'{`), "}", `}'`))
			}
			start := time.Now()
			_, left := n.leaked(before, time.Second)
			for _, what := range left {
				if !strings.Contains(what, "firewalld") {
					t.Errorf("a second later: %s", what)
				}
			}
			t.Logf("repaired after %v", time.Since(start).Round(time.Millisecond))
			_, _ = nettest.Try(nil, "nft", "delete", "table", "inet", "firewalld")
		})
	}
	if err := n.check(n.keeper); err != nil {
		t.Error(err)
	}
}
