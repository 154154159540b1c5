// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) {
	if l := os.Getenv(levelVar); l != "" {
		if err := serveSender(level(l)); err != nil {
			fmt.Fprintln(os.Stderr, "sender:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(nettest.MainWithPrograms(m))
}

// needSuite skips what make test-hostile runs.
func needSuite(t *testing.T) {
	t.Helper()
	if os.Getenv("WEFT_HOSTILE") == "" {
		t.Skip("make test-hostile runs it")
	}
	// A kernel that loads its modules on demand has this one before several worlds want it in the same moment.
	nettest.Run(t, nettest.NS(t, "modules"), "ip", "link", "add", "one", "type", "veth", "peer", "name", "two")
}
