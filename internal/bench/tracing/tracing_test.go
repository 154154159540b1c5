// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/bench/tracing"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// Each kind is measured, and nothing is left.
func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r, err := tracing.Run(t.Context(), tracing.Config{N: 1, Span: 50 * time.Millisecond, Seed: 1})
	if err != nil {
		if strings.Contains(err.Error(), "eBPF") || strings.Contains(err.Error(), "BTF") {
			nettest.Skip(t, "drops are not reported: "+err.Error())
		}
		t.Fatal(err)
	}
	if len(r.Rows) != 4 {
		t.Errorf("rows %+v", r.Rows)
	}
	for _, row := range r.Rows {
		if row.Median <= 0 || row.Ratio <= 0 || row.N != 1 {
			t.Errorf("%+v", row)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, c := range []tracing.Config{{N: 0, Span: time.Second}, {N: 1}} {
		if c.Check() == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}
