// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

const module = "github.com/weft-net/weft/"

// source is one Go file of the tree.
type source struct {
	path string // below the root, with slashes
	room string // its directory
	text string
	tree *ast.File
	set  *token.FileSet
}

// breach is one place where a law is broken.
type breach struct {
	path string
	line int
	what string
}

func (b breach) String() string { return b.place() + b.what }

func (s *source) breach(at token.Pos, format string, args ...any) breach {
	return breach{s.path, s.set.Position(at).Line, fmt.Sprintf(format, args...)}
}

func (s *source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s *source) generated() bool { return ast.IsGenerated(s.tree) }

// client reports whether the file is of the client that client-gen makes as it makes everybody's: with a scheme that a
// variable holds and init fills. No program of weft links it.
func (s *source) client() bool { return s.generated() && s.in("pkg/client") }

// in tells whether the file is in one of the rooms or below.
func (s *source) in(rooms ...string) bool {
	for _, r := range rooms {
		if s.room == r || strings.HasPrefix(s.room, r+"/") {
			return true
		}
	}
	return false
}

// imports gives the paths that the file imports, with the place of each.
func (s *source) imports() map[string]token.Pos {
	out := map[string]token.Pos{}
	for _, i := range s.tree.Imports {
		out[strings.Trim(i.Path.Value, `"`)] = i.Pos()
	}
	return out
}

func parse(t *testing.T, name, text string) *source {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse %s: %v", name, err)
	}
	return &source{path: name, room: path.Dir(name), text: text, tree: f, set: set}
}

// root is the top of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("the repository's root is not where it was: %v", err)
	}
	return dir
}

// whole reads all Go files of the repository.
func whole(t *testing.T) []*source {
	t.Helper()
	top := root(t)
	var out []*source
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); name != top && (n == "testdata" || n == "bin" || strings.HasPrefix(n, ".")) {
				return filepath.SkipDir
			}
			// A module of its own is another house: test/kube builds the programs of others in some.
			if _, err := os.Stat(filepath.Join(name, "go.mod")); name != top && err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		out = append(out, parse(t, filepath.ToSlash(rel), string(text)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// small reads a house from testdata. Lines of its comment that begin with "want" name the breaches, in order.
func small(t *testing.T, file string) (tree []*source, want []string) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(a.Comment)) {
		if w, ok := strings.CutPrefix(strings.TrimSpace(line), "want "); ok {
			want = append(want, w)
		}
	}
	for _, f := range a.Files {
		if !strings.HasSuffix(f.Name, ".go") {
			continue
		}
		tree = append(tree, parse(t, f.Name, string(f.Data)))
	}
	return tree, want
}

func (b breach) place() string {
	if b.line == 0 {
		return b.path + ": "
	}
	return fmt.Sprintf("%s:%d: ", b.path, b.line)
}
