// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/connectivitytest"
)

// TestConnectivity: weft connectivity-test passes in a real cluster with all its tests, also while an agent is replaced,
// and leaves nothing; a node that is broken fails it, and is named.
func TestConnectivity(t *testing.T) {
	c := weft(t)
	begun := time.Now()
	r := c.connectivityTest(t, "--disruptive")
	t.Logf("took %.0f s", time.Since(begun).Seconds())
	for _, one := range r.Tests {
		t.Logf("%s: %d checks, %d failed, skipped %q, %.1f s", one.Name, len(one.Rows), one.Failed(), one.Skipped,
			float64(one.Millis)/1000)
		for _, row := range one.Rows {
			if !row.OK || one.Name == "agent" {
				t.Logf("  %s: %s %s\n%s", row.Name, row.Error, row.Result.Detail, strings.Join(row.Diagnosis, "\n"))
			}
		}
		if len(one.Rows) == 0 && !slices.Contains([]string{"external", "dns", "vms"}, one.Name) {
			t.Errorf("%s was not run: %q %s", one.Name, one.Skipped, one.Error)
		}
	}
	if !r.OK() {
		t.Error("a healthy cluster fails")
	}
	if left := c.kubectl(t, "get", "namespaces", "-o", "name"); strings.Contains(left, connectivitytest.Prefix) {
		t.Errorf("left: %s", left)
	}
	far := r.Nodes[1]
	c.must(t, "exec", far, "nft",
		"add table inet fw; add chain inet fw f { type filter hook forward priority 10; policy drop; }")
	defer c.must(t, "exec", far, "nft", "delete table inet fw")
	r = c.connectivityTest(t, "--only", "pods", "--wait", "2s")
	if r.OK() || !strings.Contains(diagnoses(r), "policy of chain inet fw f is drop") {
		t.Errorf("with a firewall on %s: %+v", far, r)
	}
}

// connectivityTest runs weft connectivity-test, and returns its report.
func (c Cluster) connectivityTest(t *testing.T, args ...string) (r connectivitytest.Report) {
	t.Helper()
	program, err := filepath.Abs("../../../bin/image/" + runtime.GOARCH + "/weft")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	out, err := c.call(ctx, "", append([]string{
		"exec", "--name", c.name, "control", program, "connectivity-test", "-o", "json",
	}, args...)...)
	if begin := strings.Index(out, "{"); begin < 0 || json.NewDecoder(strings.NewReader(out[begin:])).Decode(&r) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if (err == nil) != r.OK() {
		t.Errorf("%v: %s", err, out)
	}
	return r
}

// diagnoses returns what was found about all failed checks.
func diagnoses(r connectivitytest.Report) string {
	var out strings.Builder
	for _, one := range r.Tests {
		for _, row := range one.Rows {
			out.WriteString(strings.Join(row.Diagnosis, "\n"))
		}
	}
	return out.String()
}
