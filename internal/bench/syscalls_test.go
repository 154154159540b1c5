// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestSystemCallsOfAnAdd bounds the system calls of an ADD, in both processes, that are neither those of an empty program
// nor the Go scheduler's, and its programs. More of them need a reason; less are a lower bound.
func TestSystemCallsOfAnAdd(t *testing.T) {
	nettest.EndToEnd(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		nettest.Skip(t, "strace is missing")
	}
	dir := t.TempDir()
	agent, cni, empty := filepath.Join(dir, "weft-agent"), filepath.Join(dir, "cni"), filepath.Join(dir, "empty")
	if err := os.Mkdir(cni, 0o755); err != nil {
		t.Fatal(err)
	}
	nettest.Program(t, "weft-agent", agent)
	nettest.Program(t, "weft-cni", filepath.Join(cni, "weft-cni"))
	if _, err := exec.LookPath("go"); err != nil {
		nettest.Skip(t, "the empty program cannot be built here: "+err.Error())
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", empty, "../../test/empty")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the empty program: %v\n%s", err, out)
	}
	impls, err := Impls(nil, []string{"agent"}, cni, agent)
	if err != nil {
		t.Fatal(err)
	}
	for name, most := range map[string]float64{"bridge4": 84, "ptp4": 74, "pod": 100} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("../../test/chains", name+".conflist")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			chain, err := ParseChain(file, text)
			if err != nil {
				t.Fatal(err)
			}
			report, err := Run(t.Context(), Config{
				Chain: chain, Impls: impls, N: 1, Concurrency: []int{1}, Pods: []int{1}, Strace: strace, Empty: empty,
				Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			limits := map[string]float64{"add_syscalls_of_work": most, "add_execs": 1}
			for _, row := range report.Rows {
				limit, limited := limits[row.Metric]
				if !limited {
					continue
				}
				delete(limits, row.Metric)
				if t.Logf("%s: %.0f of at most %.0f", row.Metric, row.P50, limit); row.P50 > limit {
					t.Errorf("%s: %.0f, more than %.0f", row.Metric, row.P50, limit)
				}
			}
			if len(limits) > 0 {
				t.Errorf("not measured: %v", limits)
			}
		})
	}
}
