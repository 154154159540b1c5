// SPDX-License-Identifier: Apache-2.0

package path_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// needFlannel skips a test without what flannel's design needs: the program that writes its rules, and br_netfilter.
func needFlannel(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("iptables-restore"); err != nil {
		nettest.Skip(t, "iptables-restore is missing; it writes flannel's rules")
	}
	nettest.NeedBridgeNetfilter(t)
}

// TestRun runs every test of every way once, for a moment: it shows that packets arrive, not how fast.
func TestRun(t *testing.T) {
	needFlannel(t)
	nettest.Need(t, "vxlan")
	dir := nettest.Programs(t)
	report, err := path.Run(t.Context(), path.Config{
		Backends: []string{"host-gw", "vxlan"}, N: 1, Span: 5 * time.Millisecond, Self: filepath.Join(dir, "weft-bench"),
		BinDir: filepath.Join(dir, "cni"),
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(report.Rows), (1+2*3+3)*len(path.Tests()); got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
	for _, r := range report.Rows {
		flannel := r.Flannel > 0 || r.Design == "wire"
		if r.Median <= 0 || r.N != 1 || r.Wire <= 0 || !flannel {
			t.Errorf("%+v", r)
		}
	}
	var b strings.Builder
	if err := report.Text(&b); err != nil || !strings.Contains(b.String(), "weft ptp") {
		t.Errorf("text: %v\n%s", err, b.String())
	}
}

// TestGuards measures each of weft's designs with source guards and without.
func TestGuards(t *testing.T) {
	nettest.NeedBridgeNetfilter(t)
	dir := nettest.Programs(t)
	report, err := path.Run(t.Context(), path.Config{
		Backends: []string{"host-gw"}, Tests: []string{"udp rr"}, Guards: true, N: 1, Span: 5 * time.Millisecond,
		Self:   filepath.Join(dir, "weft-bench"),
		BinDir: filepath.Join(dir, "cni"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ratios := 0
	for _, r := range report.Rows {
		if r.Median <= 0 || r.Flannel > 0 ||
			(r.Unguarded > 0) != (strings.HasPrefix(r.Design, "weft") && !strings.HasSuffix(r.Design, " unguarded")) {
			t.Errorf("%+v", r)
		}
		if r.Unguarded > 0 {
			ratios++
		}
	}
	if ratios != 4 { // ptp and bridge, on one node and across
		t.Errorf("%d ratios: %+v", ratios, report.Rows)
	}
	var b strings.Builder
	if err := report.Text(&b); err != nil || !strings.Contains(b.String(), "without guards") {
		t.Errorf("text: %v\n%s", err, b.String())
	}
}

// TestFastPath measures weft's routed pods with the fast path and without.
func TestFastPath(t *testing.T) {
	probe, err := fastpath.Load(nil)
	if err != nil {
		nettest.Skip(t, "no fast path: "+err.Error())
	}
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	needFlannel(t)
	dir := nettest.Programs(t)
	report, err := path.Run(t.Context(), path.Config{
		Backends: []string{"host-gw"}, Tests: []string{"udp rr"}, FastPath: true, N: 1, Span: 5 * time.Millisecond,
		Self:   filepath.Join(dir, "weft-bench"),
		BinDir: filepath.Join(dir, "cni"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range report.Rows {
		if r.Slow > 0 {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d rows have a ratio: %+v", n, report.Rows)
	}
}

// TestPolicies measures weft's routed pods with policies, without, and without any rule.
func TestPolicies(t *testing.T) {
	needFlannel(t)
	dir := nettest.Programs(t)
	report, err := path.Run(t.Context(), path.Config{
		Backends: []string{"host-gw"}, Tests: []string{"connect", "udp rr"}, Policies: 20, Unfiltered: true, N: 1,
		Span: 5 * time.Millisecond, Self: filepath.Join(dir, "weft-bench"), BinDir: filepath.Join(dir, "cni"),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ratios := map[string]int{}
	for _, r := range report.Rows {
		if (r.Unselected > 0) != (r.Design == "weft ptp, 20 policies") {
			t.Errorf("ratio to the same without policies: %+v", r)
		}
		if (r.Unfiltered > 0) != (r.Design == "weft ptp, 20 policies" || r.Design == "weft ptp") {
			t.Errorf("ratio to the same without any rule: %+v", r)
		}
		ratios[r.Design]++
	}
	if ratios["weft ptp, 20 policies"] != 4 || ratios["weft ptp unfiltered"] != 4 { // two tests, on one node and across
		t.Errorf("rows by design: %v", ratios)
	}
	var b strings.Builder
	if err := report.Text(&b); err != nil || !strings.Contains(b.String(), "without policies") ||
		!strings.Contains(b.String(), "without any rule") {
		t.Errorf("text: %v\n%s", err, b.String())
	}
}

func TestRunRejectsBadConfig(t *testing.T) {
	for want, cfg := range map[string]path.Config{
		"-n 0 is out of range: 1 or more (for example -n 7)": {Span: time.Second},
		"--span 2h0m0s is out of range: 1ms to 10s (for example --span 300ms)": {
			N: 1, Span: 2 * time.Hour,
		},
		`--backends "ipip" is not host-gw, vxlan or udp (for example --backends host-gw)`: {
			N: 1, Span: time.Second, Backends: []string{"ipip"},
		},
		`--tests "sctp" is not tcp rr, udp rr, connect, packets or stream (for example --tests "tcp rr")`: {
			N: 1, Span: time.Second, Tests: []string{"sctp"},
		},
		"--policies -1 is out of range: 0 to 26214 (for example --policies 1000)": {N: 1, Span: time.Second, Policies: -1},
		"--guards compares designs without policies: --policies and --unfiltered have no effect with it (leave --guards out)": {
			N: 1, Span: time.Second, Policies: 1, Guards: true,
		},
	} {
		if _, err := path.Run(t.Context(), cfg); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
