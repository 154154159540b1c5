// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	linkInText   = regexp.MustCompile(`\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)`)
	fencedText   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	headingLine  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fileAsText   = regexp.MustCompile("\\.md`?$")
	outsideOfIDs = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// wrongLinks lists the links of a document that lead to no file or heading, and those whose text is the name of a
// document instead of its title. Links to other hosts are not followed.
func wrongLinks(t *testing.T, file, text string) []string {
	t.Helper()
	var out []string
	for _, m := range linkInText.FindAllStringSubmatch(fencedText.ReplaceAllString(text, ""), -1) {
		link := m[2]
		if fileAsText.MatchString(m[1]) {
			out = append(out, "calls "+link+" by a file's name: write its title")
		}
		target, heading, _ := strings.Cut(link, "#")
		if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
			continue
		}
		to, there := file, text
		if target != "" {
			to = filepath.Join(filepath.Dir(file), target)
			if _, err := os.Stat(to); err != nil {
				out = append(out, "links to "+link+", which is not there")
				continue
			}
			if heading != "" {
				b, err := os.ReadFile(to)
				if err != nil {
					t.Fatal(err)
				}
				there = string(b)
			}
		}
		if heading != "" && strings.HasSuffix(to, ".md") && !headingIDs(there)[heading] {
			out = append(out, "links to "+link+": no such heading")
		}
	}
	return out
}

// headingIDs are the names by which links refer to a document's headings, as repository browsers make them.
func headingIDs(text string) map[string]bool {
	out, seen := map[string]bool{}, map[string]int{}
	for _, m := range headingLine.FindAllStringSubmatch(fencedText.ReplaceAllString(text, ""), -1) {
		title := linkInText.ReplaceAllString(m[1], "$1")
		id := strings.ReplaceAll(outsideOfIDs.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
		n := seen[id]
		if seen[id]++; n > 0 {
			id += "-" + strconv.Itoa(n)
		}
		out[id] = true
	}
	return out
}

// TestLinks: every relative link in a document of the repository leads to a file, and to a heading of it if it names one.
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
		for _, wrong := range wrongLinks(t, file, string(text)) {
			t.Errorf("%s %s", file, wrong)
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

// TestLinksSee: what is wrong with a link is found, wherever else a document links to.
func TestLinksSee(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there.md"), []byte("# A part\n## The `x`, and y_z\n## A part\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "# Here\n[a](there.md#a-part) [a](there.md#the-x-and-y_z) [a](there.md#a-part-1) [b](gone.md) [c](#here) [d](#gone)\n" +
		"[e](https://example.org/x#y) [there.md](there.md) [`there.md`](there.md#gone)\n```\n[f](in-code.md)\n```\n"
	want := []string{
		"links to gone.md, which is not there", "links to #gone: no such heading",
		"calls there.md by a file's name: write its title", "calls there.md#gone by a file's name: write its title",
		"links to there.md#gone: no such heading",
	}
	if d := cmp.Diff(want, wrongLinks(t, filepath.Join(dir, "doc.md"), text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
