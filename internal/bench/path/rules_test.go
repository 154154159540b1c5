// SPDX-License-Identifier: Apache-2.0

package path

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestRulesOfDesigns: a design with policies has them and the source guard in the kernel of both nodes, where they deny what
// none of them allows; one without any rule has none.
func TestRulesOfDesigns(t *testing.T) {
	nettest.NeedBridgeNetfilter(t)
	dir := nettest.Programs(t)
	b := &bench{
		cfg: Config{Self: filepath.Join(dir, "weft-bench"), BinDir: filepath.Join(dir, "cni"), Log: slog.New(slog.DiscardHandler)},
		dir: t.TempDir(),
	}
	worlds := map[string]*world{
		"policies":   {impl: "weft", backend: "host-gw", plugin: "ptp", guarded: true, policies: 30},
		"unfiltered": {impl: "weft", backend: "host-gw", plugin: "ptp", guarded: true, unfiltered: true},
	}
	for name, w := range worlds {
		t.Cleanup(w.close)
		if err := b.setUp(t.Context(), w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for i := range worlds["policies"].nodes {
		w := worlds["policies"]
		rules := nettest.Run(t, w.nodes[i].ns, "nft", "list", "ruleset")
		own := w.nodes[i].pods[1]
		// The last peer of the last policy is the 300th address.
		for _, want := range []string{
			"30 policies", "10.64.1.43", own.addr.String(), fmt.Sprintf("%q . %s . %s", own.link, own.mac, own.addr),
		} {
			if !strings.Contains(rules, want) {
				t.Errorf("node %s has no %s:\n%s", nodeName(i), want, rules)
			}
		}
		if rules := nettest.Run(t, worlds["unfiltered"].nodes[i].ns, "nft", "list", "ruleset"); strings.TrimSpace(rules) != "" {
			t.Errorf("unfiltered node %s has rules:\n%s", nodeName(i), rules)
		}
	}
	for name, w := range worlds {
		connect := func(port int) (err error) {
			if err := w.nodes[0].pods[0].ns.Do(func() error {
				var c net.Conn
				if c, err = net.DialTimeout("tcp4", fmt.Sprintf("%s:%d", w.nodes[1].pods[0].addr, port), 2*time.Second); err == nil {
					_ = c.Close()
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return err
		}
		// Nothing listens: a packet that arrives is answered with a reset.
		if err := connect(port); !strings.Contains(fmt.Sprint(err), syscall.ECONNREFUSED.Error()) {
			t.Errorf("%s: the port of the measurements: %v", name, err)
		}
		if err := connect(port + 1); strings.Contains(fmt.Sprint(err), syscall.ECONNREFUSED.Error()) == (w.policies > 0) {
			t.Errorf("%s: another port: %v", name, err)
		}
	}
}
