// SPDX-License-Identifier: Apache-2.0

package house

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the drawing in ARCHITECTURE.md")

// The drawing stands between these two lines of ARCHITECTURE.md.
const (
	drawingBegin = "```arrows\n"
	drawingEnd   = "```\n"
)

// TestDrawing compares who imports whom with the drawing in ARCHITECTURE.md, so that the plan on paper cannot drift.
func TestDrawing(t *testing.T) {
	drawn := draw(whole(t))
	t.Logf("who imports whom:\n%s", drawn)
	file := filepath.Join(root(t), "ARCHITECTURE.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), drawingBegin)
	paper, tail, closed := strings.Cut(rest, drawingEnd)
	if !found || !closed {
		t.Fatalf("%s has no drawing: a block that begins with %q", file, strings.TrimSpace(drawingBegin))
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+drawingBegin+drawn+drawingEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(paper, drawn); d != "" {
		t.Errorf("the drawing in ARCHITECTURE.md is not the house (-drawn +imports); change it on purpose:\n"+
			"go test ./internal/house -run TestDrawing -update\n%s", d)
	}
}

// draw lists the arrows between rooms. Floors go from the programs down to the words; a room is named without
// internal/.
func draw(tree []*source) string {
	arrows := map[string][]string{}
	for _, s := range tree {
		if s.test() || s.client() || !s.in("internal", "cmd", "pkg") {
			continue
		}
		from := strings.TrimPrefix(s.room, "internal/")
		if arrows[from] == nil {
			arrows[from] = []string{}
		}
		for p := range s.imports() {
			room, ok := ours(p)
			to := strings.TrimPrefix(room, "internal/")
			if ok && !slices.Contains(arrows[from], to) {
				arrows[from] = append(arrows[from], to)
			}
		}
	}
	var rooms []string
	width := 0
	for r := range arrows {
		rooms = append(rooms, r)
		width = max(width, len(r))
	}
	depth := floors(arrows)
	slices.SortFunc(rooms, func(a, b string) int {
		if depth[a] != depth[b] {
			return depth[b] - depth[a]
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for _, r := range rooms {
		slices.Sort(arrows[r])
		to := strings.Join(arrows[r], " ")
		if to == "" {
			to = "·"
		}
		b.WriteString(r + strings.Repeat(" ", width-len(r)) + " → " + to + "\n")
	}
	return b.String()
}

// floors gives the length of the longest way down from each room; the words are on floor 0.
func floors(arrows map[string][]string) map[string]int {
	depth := map[string]int{}
	var floor func(room string) int
	floor = func(room string) int {
		if d, ok := depth[room]; ok {
			return d
		}
		depth[room] = 0
		d := 0
		for _, to := range arrows[room] {
			d = max(d, floor(to)+1)
		}
		depth[room] = d
		return d
	}
	for r := range arrows {
		floor(r)
	}
	return depth
}

// TestDraw: the drawing of a small house, from its roof to its cellar.
func TestDraw(t *testing.T) {
	tree := []*source{
		parse(t, "internal/endpoint/attach/a.go", "package attach\nimport (\n\"os\"\n\""+module+"internal/model\"\n\""+module+
			"internal/kernel/link\"\n)\n"),
		parse(t, "internal/endpoint/attach/a_test.go", "package attach\nimport \""+module+"internal/nettest\"\n"),
		parse(t, "internal/kernel/link/a.go", "package link\nimport \""+module+"internal/state\"\n"),
		parse(t, "internal/model/a.go", "package model\n"),
		parse(t, "internal/state/a.go", "package state\n"),
	}
	const want = "endpoint/attach → kernel/link model\nkernel/link     → state\nmodel           → ·\nstate           → ·\n"
	if d := cmp.Diff(want, draw(tree)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
