// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	tables "github.com/yuin/goldmark/extension/ast"
)

//go:embed page.html site.css site.js
var static embed.FS

// href returns where a document is on the site: docs/ is its root.
func href(file string) string {
	name := strings.TrimPrefix(strings.TrimSuffix(file, ".md"), "docs/")
	if file == index {
		name = "index"
	}
	return strings.ToLower(name) + ".html"
}

// relative returns the way from one page of the site to another place of it.
func relative(from, to string) string {
	r, err := filepath.Rel(path.Dir("/"+from), "/"+to)
	if err != nil {
		return to
	}
	return filepath.ToSlash(r)
}

// write renders all pages into a directory, which it creates.
func (s *site) write(dir string) error {
	layout, err := template.ParseFS(static, "page.html")
	if err != nil {
		return err
	}
	var problems []error
	for _, file := range slices.Sorted(maps.Keys(s.pages)) {
		problems = append(problems, s.relink(s.pages[file])...)
		labelCells(s.pages[file])
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(s.pages)) {
		if err := s.writePage(dir, layout, s.pages[file]); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, name := range []string{"site.css", "site.js"} {
		b, err := static.ReadFile(name)
		if err == nil {
			err = put(filepath.Join(dir, name), b)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range s.assets {
		b, err := os.ReadFile(filepath.Join(s.root, name))
		if err == nil {
			err = put(filepath.Join(dir, strings.TrimPrefix(name, "docs/")), b)
		}
		if err != nil {
			return err
		}
	}
	return s.writeIndex(dir)
}

// relink turns links to documents into links to pages, and returns those that lead nowhere.
func (s *site) relink(p *page) (problems []error) {
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			to, err := s.resolve(p, string(n.Destination))
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", p.file, err))
			}
			n.Destination = []byte(to)
		case *ast.Image:
			file, _, local := target(p.file, string(n.Destination))
			if local && !slices.Contains(s.assets, file) {
				problems = append(problems, fmt.Errorf("%s: no picture %s", p.file, n.Destination))
			}
		}
		return ast.WalkContinue, nil
	})
	return problems
}

// labelCells labels each cell of a table with its column's heading, which a narrow screen shows in front of it.
func labelCells(p *page) {
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		row, ok := n.(*tables.TableRow)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		heading := row.Parent().FirstChild().FirstChild()
		for cell := row.FirstChild(); cell != nil && heading != nil; {
			if label := strings.TrimSpace(plain(heading, p.source)); label != "" {
				cell.SetAttributeString("data-label", []byte(label))
			}
			cell, heading = cell.NextSibling(), heading.NextSibling()
		}
		return ast.WalkSkipChildren, nil
	})
}

// resolve returns the link as it is on the site.
func (s *site) resolve(p *page, to string) (string, error) {
	file, anchor, local := target(p.file, to)
	if !local {
		return to, nil
	}
	hash := ""
	if anchor != "" {
		hash = "#" + anchor
	}
	if q := s.pages[file]; q != nil {
		if anchor != "" && !q.has(anchor) {
			return to, fmt.Errorf("link to %s: %s has no such heading", to, file)
		}
		if q == p && hash != "" {
			return hash, nil
		}
		return relative(href(p.file), href(file)) + hash, nil
	}
	if _, err := os.Stat(filepath.Join(s.root, file)); err != nil {
		return to, fmt.Errorf("link to %s: no such file", to)
	}
	return repository + file + hash, nil
}

// view is what the layout shows.
type view struct {
	Title, Root, Here string
	Nav               []section
	Headings          []link
	Body              template.HTML
}

func (s *site) writePage(dir string, layout *template.Template, p *page) error {
	var body bytes.Buffer
	if err := s.markdown.Renderer().Render(&body, p.source, p.tree); err != nil {
		return err
	}
	here := href(p.file)
	v := view{
		Title: p.title, Here: here, Root: strings.TrimSuffix(relative(here, "site.css"), "site.css"),
		Body: template.HTML(body.String()), //nolint:gosec // rendered from the repository's own documents
	}
	for _, sec := range s.nav {
		out := section{Title: sec.Title}
		for _, l := range sec.Pages {
			out.Pages = append(out.Pages, link{l.Title, relative(here, href(l.Href))})
		}
		v.Nav = append(v.Nav, out)
	}
	for _, h := range p.headings {
		if h.level == 2 {
			v.Headings = append(v.Headings, link{h.text, "#" + h.id})
		}
	}
	var out bytes.Buffer
	if err := layout.Execute(&out, v); err != nil {
		return err
	}
	return put(filepath.Join(dir, here), out.Bytes())
}

// entry is what the search knows of a page.
type entry struct {
	Title    string   `json:"title"`
	Href     string   `json:"href"`
	Headings []string `json:"headings"`
	IDs      []string `json:"ids"`
	Text     string   `json:"text"`
}

// writeIndex writes the search's index as a script, so that it can be read from files, too.
func (s *site) writeIndex(dir string) error {
	var entries []entry
	for _, file := range slices.Sorted(maps.Keys(s.pages)) {
		p := s.pages[file]
		e := entry{Title: p.title, Href: href(file), Text: p.words}
		for _, h := range p.headings {
			e.Headings, e.IDs = append(e.Headings, h.text), append(e.IDs, h.id)
		}
		entries = append(entries, e)
	}
	b, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	return put(filepath.Join(dir, "search-index.js"), append(append([]byte("const searchIndex = "), b...), ";\n"...))
}

// put writes a file and the directories above it.
func put(name string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o644)
}
