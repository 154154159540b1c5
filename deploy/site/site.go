// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// index is the page whose lists are the navigation.
const index = "docs/README.md"

// repository is where links to files that are no pages lead.
const repository = "https://github.com/weft-net/weft/blob/main/"

// page is one document.
type page struct {
	file     string // path in the repository
	title    string
	source   []byte
	tree     ast.Node
	headings []heading
	// words is the plain text, for the search.
	words string
}

// heading is a part of a page that a link can name.
type heading struct {
	level    int
	id, text string
}

// section is a heading of the navigation and its pages.
type section struct {
	Title string
	Pages []link
}

// link is a page as the navigation shows it.
type link struct{ Title, Href string }

// site is all documents.
type site struct {
	root     string
	markdown goldmark.Markdown
	pages    map[string]*page // by file
	assets   []string         // pictures, by file
	nav      []section
}

// outside are documents outside of docs/ that are pages as well.
func outside() []string {
	return []string{"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
}

// load reads and parses all documents and the navigation.
func load(root string) (*site, error) {
	s := &site{
		root:  root,
		pages: map[string]*page{},
		markdown: goldmark.New(
			goldmark.WithExtensions(extension.GFM),
			goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		),
	}
	for _, name := range outside() {
		if err := s.add(name); err != nil {
			return nil, err
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch path.Ext(rel) {
		case ".md":
			return s.add(rel)
		case ".svg", ".png":
			s.assets = append(s.assets, rel)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, s.navigate()
}

// add reads one document.
func (s *site) add(file string) error {
	source, err := os.ReadFile(filepath.Join(s.root, file))
	if err != nil {
		return err
	}
	p := &page{file: file, source: source}
	ids := &slugs{seen: map[string]int{}}
	p.tree = s.markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(ids))))
	var words strings.Builder
	err = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			b, _ := id.([]byte)
			h := heading{n.Level, string(b), plain(n, source)}
			p.headings = append(p.headings, h)
			if n.Level == 1 && p.title == "" {
				p.title = h.text
			}
		case *ast.Text:
			words.Write(n.Segment.Value(source))
			words.WriteByte(' ')
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	if p.title == "" {
		return fmt.Errorf("%s: no heading of level 1", file)
	}
	p.words = strings.Join(strings.Fields(words.String()), " ")
	s.pages[file] = p
	return nil
}

// plain returns the text below a node.
func plain(n ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			out.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// navigate reads the navigation from the index: headings of level 2 and the links of the lists below them. Every page
// must be in it, or be linked from one that is.
func (s *site) navigate() error {
	p := s.pages[index]
	if p == nil {
		return fmt.Errorf("%s is missing", index)
	}
	linked := map[string]bool{index: true}
	err := ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				s.nav = append(s.nav, section{Title: plain(n, p.source)})
			}
		case *ast.Link:
			file, _, local := target(p.file, string(n.Destination))
			if !local || s.pages[file] == nil || len(s.nav) == 0 || linked[file] {
				break
			}
			linked[file] = true
			last := &s.nav[len(s.nav)-1]
			last.Pages = append(last.Pages, link{plain(n, p.source), file})
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var missing []error
	for file := range s.pages {
		if !linked[file] && !slices.ContainsFunc(s.nav, func(sec section) bool {
			return slices.ContainsFunc(sec.Pages, func(l link) bool { return s.links(l.Href, file) })
		}) {
			missing = append(missing, fmt.Errorf("%s: neither %s nor a page in it links to it", file, index))
		}
	}
	return errors.Join(missing...)
}

// links reports whether a page has a link to another.
func (s *site) links(from, to string) bool {
	found := false
	_ = ast.Walk(s.pages[from].tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if l, ok := n.(*ast.Link); ok && entering {
			file, _, local := target(from, string(l.Destination))
			found = found || local && file == to
		}
		return ast.WalkContinue, nil
	})
	return found
}

// target resolves a link of a file: the file in the repository and the heading. It is not local when it leads to
// another host.
func target(from, href string) (file, anchor string, local bool) {
	if strings.Contains(href, "://") || strings.HasPrefix(href, "mailto:") {
		return "", "", false
	}
	file, anchor, _ = strings.Cut(href, "#")
	if file == "" {
		return from, anchor, true
	}
	return path.Join(path.Dir(from), file), anchor, true
}

// has reports whether the page has a heading with the id.
func (p *page) has(id string) bool {
	return slices.ContainsFunc(p.headings, func(h heading) bool { return h.id == id })
}

// slugs makes the ids of headings as repository browsers do, so that one link serves both.
type slugs struct{ seen map[string]int }

// Generate returns the id of a heading.
func (s *slugs) Generate(value []byte, _ ast.NodeKind) []byte {
	var out strings.Builder
	for _, r := range strings.ToLower(string(bytes.TrimSpace(value))) {
		switch {
		case r == ' ', r == '-':
			out.WriteByte('-')
		case r == '_', r >= '0' && r <= '9', r >= 'a' && r <= 'z', r > 127 && !strings.ContainsRune("…–—“”‘’→⇄×", r):
			out.WriteRune(r)
		}
	}
	id := out.String()
	if id == "" {
		id = "heading"
	}
	n := s.seen[id]
	s.seen[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put records an id that the document sets itself.
func (s *slugs) Put(value []byte) { s.seen[string(value)]++ }
