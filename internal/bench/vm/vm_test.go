// SPDX-License-Identifier: Apache-2.0

package vm_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/bench/vm"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// TestRun runs every test of every design once, for a moment: it shows that frames arrive, not how fast.
func TestRun(t *testing.T) {
	nettest.Need(t, "tap")
	report, err := vm.Run(t.Context(), vm.Config{
		Designs: tested(), N: 1, Starts: 1, Span: 5 * time.Millisecond,
		Self: filepath.Join(nettest.Programs(t), "weft-bench"),
		Log:  slog.New(slog.DiscardHandler),
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		nettest.SkipMissing(t, fmt.Sprintf("eBPF programs cannot be loaded: %v", err))
	} else if err != nil {
		t.Fatal(err)
	}
	if got, want := len(report.Rows), len(tested())*(len(vm.Tests())+2)-2*2+1; got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
	for _, r := range report.Rows {
		if r.Unit == "MiB" && r.Median > 0 {
			continue
		}
		if r.Median <= 0 || r.N != 1 || r.Base <= 0 || r.Masquerade <= 0 || (r.Unit == "ms") == (r.Pod > 0) {
			t.Errorf("%+v", r)
		}
	}
	var b strings.Builder
	if err := report.Text(&b); err != nil || !strings.Contains(b.String(), "masquerade-older") {
		t.Errorf("text: %v\n%s", err, b.String())
	}
}

// tested returns the designs that work with a minimal kernel.
func tested() []string {
	return slices.DeleteFunc(vm.Designs(), func(d string) bool { return d == "macvtap" })
}

func TestRunRejectsBadConfig(t *testing.T) {
	const known = `frames out, frames in, frames out to pod, frames in from pod, tcp rr, connect, stream, tcp rr in, ` +
		`connect in or stream in (for example --tests "frames out")`
	for want, cfg := range map[string]vm.Config{
		"-n 0 is out of range: 1 or more (for example -n 7)": {
			Span: time.Second,
		},
		"--span 1m0s is out of range: 1ms to 10s (for example --span 200ms)": {
			N: 1, Span: time.Minute,
		},
		`--tests "udp rr" is not ` + known: {N: 1, Span: time.Second, Tests: []string{"udp rr"}},
	} {
		if _, err := vm.Run(t.Context(), cfg); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
