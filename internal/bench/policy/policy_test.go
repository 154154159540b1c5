// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/bench/policy"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// TestRun takes every test of every engine once, for a moment: it shows that the client's packets arrive, not how fast.
func TestRun(t *testing.T) {
	for _, p := range []string{"iptables-restore", "ipset"} {
		if _, err := exec.LookPath(p); err != nil {
			nettest.Without(t, "no "+p+", which writes the peers' rules")
		}
	}
	report, err := policy.Run(t.Context(), policy.Config{
		Policies: []int{0, 2}, Peers: []int{0, 20}, N: 1, Span: 5 * time.Millisecond, Program: 50,
		Self: filepath.Join(nettest.Programs(t), "weft-bench"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	// Three cells of four engines and the routed way, two tests each; programming of four engines, pods and blocks.
	if got, want := len(report.Rows), (3*4+1)*2+4*2*2; got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
	for _, r := range report.Rows {
		if r.Median <= 0 || r.N != 1 || (r.Unit == "1/s") != (r.Routed > 0) {
			t.Errorf("%+v", r)
		}
	}
	var b strings.Builder
	if err := report.Text(&b); err != nil || !strings.Contains(b.String(), "kube-router") {
		t.Errorf("text: %v\n%s", err, b.String())
	}
}

func TestRunRefusesNonsense(t *testing.T) {
	for want, cfg := range map[string]policy.Config{
		"bench: -n 0, --span 1s (give -n 1 or more, and --span between 1ms and 10s)": {Span: time.Second},
		`bench: there is no engine "pf" (known: ["routed" "iptables" "calico" "kube-router" "weft"])`: {
			N: 1, Span: time.Second, Engines: []string{"pf"},
		},
		`bench: there is no test "sctp" (known: ["tcp rr" "udp rr" "connect" "packets" "stream"])`: {
			N: 1, Span: time.Second, Tests: []string{"sctp"},
		},
		"bench: -1 policies, peers or entries (give 0 to 524288)": {N: 1, Span: time.Second, Peers: []int{-1}},
	} {
		if _, err := policy.Run(t.Context(), cfg); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
