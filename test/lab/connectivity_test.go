// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/connectivitytest"
)

// connectivityTest runs weft connectivity-test and returns its report, with which the exit code must agree.
func connectivityTest(t *testing.T, dir string, args ...string) connectivitytest.Report {
	t.Helper()
	r := weft(t, append([]string{"connectivity-test", "--dir", dir, "-o", "json"}, args...)...)
	if r.code > 1 || r.stdout == "" {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	report := decode[connectivitytest.Report](t, r.stdout)
	if report.OK() != (r.code == 0) {
		t.Errorf("exit code %d: %s", r.code, r.stdout)
	}
	return report
}

// awaitNoTest waits until nothing is left of a connectivity test: no object, and no pod.
func awaitNoTest(t *testing.T, dir string) {
	t.Helper()
	var left []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		left = nil
		files, err := os.ReadDir(filepath.Join(dir, "store"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			// The temporary file of a killed write is there until another program writes.
			if strings.Contains(f.Name(), connectivitytest.Prefix) && !atomicfile.IsTemp(f.Name()) {
				left = append(left, f.Name())
			}
		}
		for _, node := range []string{"node1", "node2"} {
			out := must(t, "sandbox", "list", "--state-dir", filepath.Join(dir, "nodes", node, "sandbox")).stdout
			if strings.Contains(out, connectivitytest.Prefix) {
				left = append(left, out)
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Fatalf("left of a connectivity test: %s", strings.Join(left, "\n"))
}

// failedTests returns the names of tests with failed checks.
func failedTests(r connectivitytest.Report) (out []string) {
	for _, t := range r.Tests {
		if t.Failed() > 0 {
			out = append(out, t.Name)
		}
	}
	return out
}

// A healthy lab passes, faults fail the tests that they concern and are named, and nothing is left, also of a test that
// is killed.
func TestConnectivityTest(t *testing.T) {
	dir, _, _ := explainLab(t)
	r := connectivityTest(t, dir)
	if !r.OK() {
		t.Errorf("without a fault: %+v", r)
	}
	for _, test := range r.Tests {
		skipped := slices.Contains([]string{"services", "dns", "external", "agent", "vms"}, test.Name)
		if skipped != (len(test.Rows) == 0) || skipped != (len(test.Skipped) > 0) {
			t.Errorf("%s: %d checks, skipped %q", test.Name, len(test.Rows), test.Skipped)
		}
	}
	awaitNoTest(t, dir)
	for name, c := range map[string]struct {
		inject    string // nft on node2
		only      string
		failed    []string
		diagnosis string
	}{
		"firewall": {
			"add chain inet fw f { type filter hook forward priority 10; }; add rule inet fw f tcp dport 8080 drop", "pods,mtu,source-guard",
			[]string{"pods", "mtu", "source-guard"},
			"tcp dport 8080 drop",
		},
		"large packets": {
			"add chain inet fw f { type filter hook forward priority 10; }; add rule inet fw f ip length > 1400 icmp type echo-request drop",
			"pods,mtu",
			[]string{"mtu"},
			"chain inet fw f, rule with handle",
		},
		"NAT between pods": {
			"add chain inet fw n { type nat hook postrouting priority 90; }; add rule inet fw n ip daddr 10.42.2.0/24 udp dport 8080 masquerade",
			"pods,mtu",
			[]string{"pods"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inNode(t, dir, "node2", "nft", "add table inet fw; "+c.inject)
			defer inNode(t, dir, "node2", "nft", "delete table inet fw")
			r := connectivityTest(t, dir, "--only", c.only, "--wait", "10s")
			if failed := failedTests(r); !slices.Equal(failed, c.failed) {
				t.Errorf("failed are %q: %+v", failed, r)
			}
			for _, test := range r.Tests {
				named := slices.ContainsFunc(test.Rows, func(row connectivitytest.Row) bool {
					return strings.Contains(strings.Join(row.Diagnosis, "\n"), c.diagnosis)
				})
				if c.diagnosis != "" && test.Name != "source-guard" && test.Failed() > 0 && !named {
					t.Errorf("%s: no diagnosis %q in %+v", test.Name, c.diagnosis, test.Rows)
				}
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		cmd := command(t, "connectivity-test", "--dir", dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if strings.Contains(weft(t, "lab", "status", "--dir", dir).stdout, connectivitytest.Prefix) {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the test does not start")
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		awaitNoTest(t, dir)
	})
	for _, wrong := range [][]string{
		{"--only", "podss"}, {"--external", "example"}, {"--wait", "-1s"}, {"--random-policies", "-1"},
	} {
		if r := weft(
			t,
			append([]string{"connectivity-test", "--dir", dir}, wrong...)...); r.code != 2 ||
			!strings.Contains(r.stderr, wrong[1]) {
			t.Errorf("%q: exit code %d: %s", wrong, r.code, r.stderr)
		}
	}
	if r := weft(t, "connectivity-test", "--dir", dir, "--junit",
		"/nonexistent/x.xml"); r.code == 0 || !strings.Contains(r.stderr, "--junit") ||
		strings.Contains(r.stderr, "answer on") {
		t.Errorf("--junit: exit code %d: %s", r.code, r.stderr)
	}
	// Where the agent of a node does not answer, the test does without the node.
	killAgent(t, dir, "node2")
	r = connectivityTest(t, dir, "--only", "pods")
	if !slices.Equal(r.Nodes, []string{"node1"}) || !r.OK() || len(r.Tests[0].Skipped) != 1 {
		t.Errorf("with one agent: %+v", r)
	}
}
