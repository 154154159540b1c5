// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/bench/observe"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// TestRun measures everything once, for a moment: it shows that pods connect, flows are seen and lines arrive, not
// how fast; and that an agent of level off has nothing.
func TestRun(t *testing.T) {
	nettest.EndToEnd(t)
	programs := nettest.Programs(t)
	report, err := observe.Run(t.Context(), observe.Config{
		N: 1, Span: 5 * time.Millisecond, Rates: []int{0, 500}, Costs: 1, CostSpan: 100 * time.Millisecond, Lines: 3,
		Self: filepath.Join(programs, "weft-bench"), Weft: filepath.Join(programs, "weft"),
		Agent: filepath.Join(programs, "weft-agent"), BinDir: filepath.Join(programs, "cni"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(report.Off, "0 sockets of conntrack, 0 eBPF programs, ") {
		t.Errorf("off: %s", report.Off)
	}
	if len(report.Connects) != 4 || len(report.Costs) != 6 || len(report.Lines) != 2 {
		t.Fatalf("%+v", report)
	}
	for _, c := range report.Connects {
		if c.N != 1 || c.Median <= 0 || c.Ratio <= 0 {
			t.Errorf("%+v", c)
		}
	}
	for _, c := range report.Costs {
		if c.N != 1 || c.RSS <= 0 || (c.Made > 0) != (c.Rate > 0) {
			t.Errorf("%+v", c)
		}
	}
	for _, l := range report.Lines {
		if l.N != 3 || l.P50 <= 0 || l.P95 < l.P50 {
			t.Errorf("%+v", l)
		}
	}
	var b strings.Builder
	if err := report.Text(&b); err != nil || !strings.Contains(b.String(), "PACKET TO LINE") {
		t.Errorf("text: %v\n%s", err, b.String())
	}
}

func TestRunRejectsBadConfig(t *testing.T) {
	const second = time.Second
	for want, cfg := range map[string]observe.Config{
		"-n -1 is out of range: 0 or more (for example -n 31)":                        {N: -1, Span: second, CostSpan: second},
		"--span 0s is out of range: 1ms to 10s (for example --span 300ms)":            {N: 1, CostSpan: second},
		"--cost-span 1m0s is out of range: 100ms to 20s (for example --cost-span 5s)": {N: 1, Span: second, CostSpan: time.Minute},
		"--rates 60000 is out of range: 0 to 50000 (for example --rates 1000)":        {Span: second, CostSpan: second, Rates: []int{60000}},
	} {
		if _, err := observe.Run(t.Context(), cfg); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", cfg, err, want)
		}
	}
}
