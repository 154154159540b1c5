// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkDocComments reports doc comments of functions and types that do not begin with the name, as Go's conventions want
// it: a search for the declaration finds the comment, and a renamed function cannot keep the comment of its old name.
// The comment of a type may begin with an article. The comment of a test may be any sentence, but not begin with the
// name of another test.
func checkDocComments(name, text string) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	var out []string
	report := func(doc *ast.CommentGroup, name, first string) {
		p := set.Position(doc.Pos())
		out = append(out, fmt.Sprintf("%s:%d: the comment of %s begins with %q", p.Filename, p.Line, name, first))
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			words := strings.Fields(d.Doc.Text())
			if len(words) == 0 {
				continue
			}
			first := strings.TrimRight(words[0], ":,.")
			if isTest(d.Name.Name) && strings.HasSuffix(name, "_test.go") {
				if isTest(first) && first != d.Name.Name {
					report(d.Doc, d.Name.Name, first)
				}
				continue
			}
			if first != d.Name.Name {
				report(d.Doc, d.Name.Name, first)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				t, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				doc := t.Doc
				if doc == nil && !d.Lparen.IsValid() {
					doc = d.Doc
				}
				words := strings.Fields(doc.Text())
				if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
					words = words[1:]
				}
				if len(words) == 0 {
					continue
				}
				if first := strings.TrimRight(words[0], ":,."); first != t.Name.Name {
					report(doc, t.Name.Name, first)
				}
			}
		}
	}
	return out, nil
}

// isTest reports whether go test runs a function of that name.
func isTest(name string) bool {
	return slices.ContainsFunc([]string{"Test", "Benchmark", "Fuzz", "Example"}, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && (rest == "" || rest[0] < 'a' || rest[0] > 'z')
	})
}

// TestDocComments checks the doc comments of all Go files.
func TestDocComments(t *testing.T) {
	for _, name := range tracked(t) {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "testdata/") || err != nil {
			continue
		}
		found, err := checkDocComments(name, string(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range found {
			t.Error(f)
		}
	}
}

// TestDocCommentsFinds: a comment that does not begin with the name is found, and no other.
func TestDocCommentsFinds(t *testing.T) {
	got, err := checkDocComments("internal/x/x_test.go", header+`
package x

// Own returns it.
func Own() {}

// Owner returns it.
func Own2() {}

func undocumented() {}

// The good is a type.
type good struct{}

// bad is a type.
type renamed struct{}

type (
	// listed is a type.
	listed int
	// other is a type.
	renamedToo int
)

// Deletes are processed once.
func TestDeletes() {}

// TestOld: deletes are processed once.
func TestNew() {}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`internal/x/x_test.go:8: the comment of Own2 begins with "Owner"`,
		`internal/x/x_test.go:16: the comment of renamed begins with "bad"`,
		`internal/x/x_test.go:22: the comment of renamedToo begins with "other"`,
		`internal/x/x_test.go:29: the comment of TestNew begins with "TestOld"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
