// SPDX-License-Identifier: Apache-2.0

package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkInText = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fencedText = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// brokenLinks lists the relative links of a document that lead to no file. Links to other hosts, and to headings of the
// same document, are not looked at.
func brokenLinks(file, text string) []string {
	var out []string
	for _, m := range linkInText.FindAllStringSubmatch(fencedText.ReplaceAllString(text, ""), -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), target)); err != nil {
			out = append(out, m[1])
		}
	}
	return out
}

// TestLinks: every relative link in a document of the repository leads to a file.
func TestLinks(t *testing.T) {
	files := documents(t)
	if len(files) < 30 {
		t.Fatalf("only %d documents found", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range brokenLinks(file, string(text)) {
			t.Errorf("%s links to %s, which is not there", file, link)
		}
	}
}

// documents are the Markdown files of the tree, without what was built.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root(t), func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case strings.HasSuffix(file, ".md"):
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestLinksSee: a link to a file that is not there is found, wherever else a document links to.
func TestLinksSee(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text := "[a](there.md#part) [b](gone.md) [c](#here) [d](https://example.org/x)\n```\n[e](in-code.md)\n```\n"
	if got := brokenLinks(filepath.Join(dir, "doc.md"), text); len(got) != 1 || got[0] != "gone.md" {
		t.Errorf("broken links %q, want gone.md alone", got)
	}
}
