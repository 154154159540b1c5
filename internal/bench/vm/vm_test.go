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

// TestRun takes every test of every design once, for a moment: it shows that frames arrive, not how fast.
func TestRun(t *testing.T) {
	nettest.Need(t, "tap")
	report, err := vm.Run(t.Context(), vm.Config{
		Designs: shown(), N: 1, Starts: 1, Span: 5 * time.Millisecond, Self: filepath.Join(nettest.Programs(t), "weft-bench"),
		Log: slog.New(slog.DiscardHandler),
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		nettest.Without(t, fmt.Sprintf("neither this user nor this kernel can run programs of eBPF: %v", err))
	} else if err != nil {
		t.Fatal(err)
	}
	if got, want := len(report.Rows), len(shown())*(len(vm.Tests())+2)-2*2+1; got != want {
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

// shown are the designs that a kernel can which is not as large as a distribution's.
func shown() []string {
	return slices.DeleteFunc(vm.Designs(), func(d string) bool { return d == "macvtap" })
}

func TestRunRefusesNonsense(t *testing.T) {
	known := `(known: ["frames out" "frames in" "frames out to pod" "frames in from pod" "tcp rr" "connect" "stream" "tcp rr in" "connect in" "stream in"])`
	for want, cfg := range map[string]vm.Config{
		"bench: -n 0, --span 1s, --starts 0 (give -n 1 or more, --span between 1ms and 10s, and --starts 0 or more)": {
			Span: time.Second,
		},
		"bench: -n 1, --span 1m0s, --starts 0 (give -n 1 or more, --span between 1ms and 10s, and --starts 0 or more)": {
			N: 1, Span: time.Minute,
		},
		`bench: there is no test "udp rr" ` + known: {N: 1, Span: time.Second, Tests: []string{"udp rr"}},
	} {
		if _, err := vm.Run(t.Context(), cfg); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
