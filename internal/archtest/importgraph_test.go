// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "update the import graph and the table of lines in ARCHITECTURE.md")

// The import graph is between these two lines of ARCHITECTURE.md.
const (
	graphBegin = "```arrows\n"
	graphEnd   = "```\n"
)

// TestImportGraph compares the import graph in ARCHITECTURE.md with the imports, so that a new edge is noticed.
func TestImportGraph(t *testing.T) {
	got := importGraph(sources(t))
	t.Logf("import graph:\n%s", got)
	file := filepath.Join(root(t), "ARCHITECTURE.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), graphBegin)
	documented, tail, closed := strings.Cut(rest, graphEnd)
	if !found || !closed {
		t.Fatalf("%s has no import graph: a block that begins with %q", file, strings.TrimSpace(graphBegin))
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+graphBegin+got+graphEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(documented, got); d != "" {
		t.Errorf("the import graph in ARCHITECTURE.md is not that of the source (-documented +imports); if the change is intended:\n"+
			"go test ./internal/archtest -run TestImportGraph -update\n%s", d)
	}
}

// importGraph lists the imports of each package, from the programs down to packages without imports. Names have no
// internal/.
func importGraph(tree []*source) string {
	edges := map[string][]string{}
	for _, s := range tree {
		if s.test() || s.client() || !s.in("internal", "cmd", "pkg") {
			continue
		}
		from := strings.TrimPrefix(s.dir, "internal/")
		if edges[from] == nil {
			edges[from] = []string{}
		}
		for p := range s.imports() {
			dir, ok := ours(p)
			to := strings.TrimPrefix(dir, "internal/")
			if ok && !slices.Contains(edges[from], to) {
				edges[from] = append(edges[from], to)
			}
		}
	}
	var dirs []string
	width := 0
	for r := range edges {
		dirs = append(dirs, r)
		width = max(width, len(r))
	}
	depth := depths(edges)
	slices.SortFunc(dirs, func(a, b string) int {
		if depth[a] != depth[b] {
			return depth[b] - depth[a]
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for _, r := range dirs {
		slices.Sort(edges[r])
		to := strings.Join(edges[r], " ")
		if to == "" {
			to = "·"
		}
		b.WriteString(r + strings.Repeat(" ", width-len(r)) + " → " + to + "\n")
	}
	return b.String()
}

// depths returns the length of the longest import chain from each package; 0 for a package without imports.
func depths(edges map[string][]string) map[string]int {
	depth := map[string]int{}
	var depthOf func(dir string) int
	depthOf = func(dir string) int {
		if d, ok := depth[dir]; ok {
			return d
		}
		depth[dir] = 0
		d := 0
		for _, to := range edges[dir] {
			d = max(d, depthOf(to)+1)
		}
		depth[dir] = d
		return d
	}
	for r := range edges {
		depthOf(r)
	}
	return depth
}

// TestImportGraphOfFixture checks the format and the order of the graph.
func TestImportGraphOfFixture(t *testing.T) {
	tree := []*source{
		parse(t, "internal/endpoint/attach/a.go", "package attach\nimport (\n\"os\"\n\""+module+"internal/model\"\n\""+module+
			"internal/kernel/link\"\n)\n"),
		parse(t, "internal/endpoint/attach/a_test.go", "package attach\nimport \""+module+"internal/nettest\"\n"),
		parse(t, "internal/kernel/link/a.go", "package link\nimport \""+module+"internal/state\"\n"),
		parse(t, "internal/model/a.go", "package model\n"),
		parse(t, "internal/state/a.go", "package state\n"),
	}
	const want = "endpoint/attach → kernel/link model\nkernel/link     → state\nmodel           → ·\nstate           → ·\n"
	if d := cmp.Diff(want, importGraph(tree)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
