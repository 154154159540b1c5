// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMesh(t *testing.T) {
	nettest.Need(t, "vxlan")
	report, err := bench.Mesh(t.Context(), bench.MeshConfig{
		Peers: []int{20}, Backends: []string{"host-gw", "vxlan"}, N: 1, Changes: 20, Listed: 20,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"host-gw", "vxlan"} {
		for _, op := range []string{"up", "join", "leave"} {
			for _, way := range []string{"weft", "one by one"} {
				found := slices.ContainsFunc(report.Rows, func(r bench.MeshRow) bool {
					return r.Backend == backend && r.Op == op && r.Way == way && r.Metric == "time" && r.N == 1 && r.Median > 0
				})
				if !found {
					t.Errorf("no time of %s, %s by %s", backend, op, way)
				}
			}
		}
	}
	var b strings.Builder
	if err := report.Text(&b); err != nil || !strings.Contains(b.String(), "list, then add") {
		t.Errorf("text: %v\n%s", err, b.String())
	}
}

func TestMeshRejectsBadConfig(t *testing.T) {
	for want, cfg := range map[string]bench.MeshConfig{
		"-n 0 is out of range: 1 or more (for example -n 5)": {
			Peers: []int{1}, Backends: []string{"vxlan"},
		},
		"--peers -1 is out of range: 0 to 60000 (for example --peers 1000)": {
			N: 1, Peers: []int{-1}, Backends: []string{"vxlan"},
		},
		"--changes 70000 is out of range: 0 to 60000 (for example --changes 1000)": {
			N: 1, Peers: []int{1}, Changes: 70000, Backends: []string{"vxlan"},
		},
		`--backends "gre" is not host-gw or vxlan (for example --backends host-gw)`: {N: 1, Peers: []int{1}, Backends: []string{"gre"}},
	} {
		if _, err := bench.Mesh(t.Context(), cfg); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
