// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// listedPackages returns the packages in the first column of the tables below "## Packages".
func listedPackages(text string) []string {
	_, rest, _ := strings.Cut(text, "\n## Packages\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	name := regexp.MustCompile("`([^`]+)`")
	var out []string
	for line := range strings.Lines(rest) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			out = append(out, m[1])
		}
	}
	return out
}

// TestPackagesAreListed: the tables of ARCHITECTURE.md have every package once, and no other.
func TestPackagesAreListed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := listedPackages(string(text))
	exist := map[string]bool{}
	for _, s := range sources(t) {
		switch {
		case s.client():
			exist["pkg/client"] = true
		case s.in("internal", "cmd", "pkg", "api"):
			exist[strings.TrimPrefix(s.dir, "internal/")] = true
		}
	}
	if len(exist) < 50 {
		t.Fatalf("only %d packages found", len(exist))
	}
	for i, name := range listed {
		if !exist[name] {
			t.Errorf("ARCHITECTURE.md lists the package %s, which does not exist", name)
		}
		if slices.Contains(listed[:i], name) {
			t.Errorf("ARCHITECTURE.md lists the package %s twice", name)
		}
	}
	for name := range exist {
		if !slices.Contains(listed, name) {
			t.Errorf("ARCHITECTURE.md lacks the package %s: add a row to the table of its district", name)
		}
	}
}

// TestListedPackages: the names are those of first columns, of the section alone.
func TestListedPackages(t *testing.T) {
	text := "# A\n| `no` | x |\n## Packages\n\n### B\n\n| Package | Does |\n|---|---|\n| `a/b`, `c` | uses `d` |\n\n## Laws\n| `e` | x |\n"
	if got := listedPackages(text); !slices.Equal(got, []string{"a/b", "c"}) {
		t.Errorf("listed %q, want a/b and c", got)
	}
}
