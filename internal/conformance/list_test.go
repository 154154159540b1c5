// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/conformance"
	"github.com/weft-net/weft/internal/nettest"
)

// vendorPlugins creates a directory with plugins of types that the kit does not know: scripts that execute weft's.
func vendorPlugins(t *testing.T, net string) string {
	t.Helper()
	dir := t.TempDir()
	for name, real := range map[string]string{"vendor-net": net, "vendor-ports": "portmap", "host-local": "host-local"} {
		text := "#!/bin/sh\n# " + name + "\nexec " + filepath.Join(nettest.Programs(t), "cni", real) + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestVendorsList: the plugins of any vendor are tested with their list; only required items count for the exit code
// and for failures in the JUnit report.
func TestVendorsList(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.xml")
	list := []string{
		"--conflist", "testdata/lists/vendor.conflist", "--junit", report, "--item", "17,19,20,26,27,29,35,36,55,72,74,79",
	}
	r, code := runReport(t, append(list, "--bin-dir", vendorPlugins(t, "ptp"))...)
	for _, row := range r.Rows {
		if row.Outcome == conformance.Fail {
			t.Errorf("%s, %d (%s): %s", row.Subject, row.Number, row.Claim, row.Seen)
		}
	}
	if code != 0 || !slices.Equal(r.Plugins, []string{"vendor-net", "vendor-ports"}) || r.Totals[conformance.Pass] < 15 {
		t.Errorf("exit code %d, plugins %v, totals %v", code, r.Plugins, r.Totals)
	}
	if got := suites(t, report); got.tests != len(r.Rows) || got.failures != 0 {
		t.Errorf("JUnit: %+v, want %d tests and no failure", got, len(r.Rows))
	}
	r, code = runReport(t, append(list, "--bin-dir", vendorPlugins(t, "loopback"))...) // creates no interface
	if _, required := r.Failures(); code != 1 || required == 0 || failing(r)[19] == "" {
		t.Errorf("exit code %d, %v", code, failing(r))
	}
	if got := suites(t, report); got.failures == 0 {
		t.Errorf("JUnit: %+v", got)
	}
}

type junitTotals struct{ tests, failures int }

func suites(t *testing.T, file string) (n junitTotals) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Suites []struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Cases    []struct {
				Name string `xml:"name,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &all); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	for _, s := range all.Suites {
		n.tests, n.failures = n.tests+s.Tests, n.failures+s.Failures
		if len(s.Cases) != s.Tests || !strings.HasPrefix(s.Cases[0].Name, "item ") {
			t.Errorf("suite %+v", s)
		}
	}
	return n
}
