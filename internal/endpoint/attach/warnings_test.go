// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/nettest"
)

// TestOlderIPTablesUnread: containers are attached although legacy iptables has rules that no program of the node can
// read, and the log warns once, with a hint.
func TestOlderIPTablesUnread(t *testing.T) {
	if out, err := nettest.Try(nil, "iptables-legacy", "-S"); err != nil {
		nettest.SkipMissing(t, "iptables-legacy: "+out)
	}
	n := newNode(t)
	host, err := kernel.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	if have, err := host.LegacyTables(false); err != nil || len(have) == 0 {
		nettest.SkipMissing(t, "which tables the older iptables have cannot be read here")
	}
	host.Root = t.TempDir() // a host without any program
	var log bytes.Buffer
	n.cfg.Host, n.cfg.Log = host, slog.New(slog.NewTextHandler(&log, nil))
	n.Attacher = attach.New(n.cfg)
	for range 2 {
		id, ns := n.pod()
		job := n.job(n.list(bridge, `{"type":"firewall"}`), id, ns)
		n.add(job)
		if err := n.Del(t.Context(), job); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	if out := log.String(); strings.Count(out, "no program on the node can read it") != 1 ||
		!strings.Contains(out, "install iptables-legacy") {
		t.Errorf("the log says:\n%s", out)
	}
	n.clean("after DEL")
}
