// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocuments renders the repository's documents: every page is in the navigation or linked from a page in it, and
// every link leads to a page, a heading or a file.
func TestDocuments(t *testing.T) {
	s, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	for file := range s.pages {
		b, err := os.ReadFile(filepath.Join(dir, href(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "<h1") || !strings.Contains(string(b), `<nav aria-label="Pages">`) {
			t.Errorf("%s: no heading or no navigation", file)
		}
	}
}

// docs writes a small repository with an index that has the text, and returns its directory.
func docs(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range outside() {
		files[name] = "# " + name
	}
	for name, text := range files {
		if err := put(filepath.Join(dir, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLinks(t *testing.T) {
	index := "# I\n## A\n- [a](a.md)\n- [b](../ARCHITECTURE.md) [c](../CHANGELOG.md) [d](../CONTRIBUTING.md) [e](../SECURITY.md)\n"
	for _, c := range []struct{ name, page, want string }{
		{"page", "# P\n[x](gone.md)", "link to gone.md: no such file"},
		{"heading", "# P\n[x](README.md#b)", "docs/README.md has no such heading"},
		{"own heading", "# P\n[x](#p) [y](#q)", "link to #q"},
		{"picture", "# P\n![x](gone.svg)", "no picture gone.svg"},
		{"title", "text", "docs/a.md: no heading of level 1"},
		{"good", "# P\n## The `x`, and y\n[x](#the-x-and-y) [y](README.md#a) [z](https://example.org/x) [r](../SECURITY.md)", ""},
	} {
		s, err := load(docs(t, map[string]string{"docs/README.md": index, "docs/a.md": c.page}))
		if err == nil {
			err = s.write(t.TempDir())
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := load(docs(t, map[string]string{"docs/README.md": index, "docs/a.md": "# A", "docs/b.md": "# B"})); err == nil ||
		!strings.Contains(err.Error(), "docs/b.md: neither") {
		t.Errorf("a page that nothing links to: %v", err)
	}
}

func TestHref(t *testing.T) {
	for file, want := range map[string]string{
		"docs/README.md": "index.html", "docs/tasks/install.md": "tasks/install.html", "ARCHITECTURE.md": "architecture.html",
	} {
		if got := href(file); got != want {
			t.Errorf("%s: %s", file, got)
		}
	}
	if got := relative("tasks/install.html", "index.html"); got != "../index.html" {
		t.Error(got)
	}
}

// TestCellLabels: each cell of a table has its column's heading, for screens on which the cells of a row are stacked.
func TestCellLabels(t *testing.T) {
	index := "# I\n## A\n[b](../ARCHITECTURE.md) [c](../CHANGELOG.md) [d](../CONTRIBUTING.md) [e](../SECURITY.md)\n\n| `a` & b | |\n|---|---|\n| x | y |\n"
	s, err := load(docs(t, map[string]string{"docs/README.md": index}))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "<td data-label=\"a &amp; b\">x</td>\n<td>y</td>"; !strings.Contains(string(b), want) {
		t.Errorf("the page lacks %s:\n%s", want, b)
	}
}
