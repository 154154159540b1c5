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

// TestRun runs every test of every engine once, for a moment: it shows that the client's packets arrive, not how fast.
func TestRun(t *testing.T) {
	for _, p := range []string{"iptables-restore", "ipset"} {
		if _, err := exec.LookPath(p); err != nil {
			nettest.SkipMissing(t, p+" is missing; it writes the rules of the other engines")
		}
	}
	report, err := policy.Run(t.Context(), policy.Config{
		Policies: []int{0, 2}, Peers: []int{0, 20}, N: 1, Span: 5 * time.Millisecond, Program: 50,
		Self: filepath.Join(nettest.Programs(t), "weft-bench"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	// Three cells of four engines and the routed baseline, two tests each; programming by four engines, pods and blocks.
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

func TestRunRejectsBadConfig(t *testing.T) {
	for want, cfg := range map[string]policy.Config{
		"-n 0 is out of range: 1 or more (for example -n 7)": {Span: time.Second},
		`--engines "pf" is not routed, iptables, calico, kube-router or weft (for example --engines routed)`: {
			N: 1, Span: time.Second, Engines: []string{"pf"},
		},
		`--tests "sctp" is not tcp rr, udp rr, connect, packets or stream (for example --tests "tcp rr")`: {
			N: 1, Span: time.Second, Tests: []string{"sctp"},
		},
		"--peers -1 is out of range: 0 to 524288 (for example --peers 100)": {N: 1, Span: time.Second, Peers: []int{-1}},
	} {
		if _, err := policy.Run(t.Context(), cfg); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
