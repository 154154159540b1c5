// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/weft-net/weft/internal/archtest/glossary"
)

// checkText finds words to avoid and British spelling in text that begins at a line of a file.
func checkText(l *glossary.List, name string, line int, text string) (out []violation) {
	for _, f := range l.Check(text) {
		out = append(out, violation{name, line + strings.Count(text[:f.Offset], "\n"), f.Message})
	}
	return out
}

// checkProse checks a file that is not Go: what a reader sees of it.
func checkProse(l *glossary.List, name, text string) []violation {
	prose, _ := glossary.Prose(name, text)
	return checkText(l, name, 1, prose)
}

// excusedLines returns the lines of a file that keep a word.
func (s *source) excusedLines() map[int]bool {
	out := map[int]bool{}
	for i, line := range strings.Split(s.text, "\n") {
		out[i+1] = glossary.Excused(line)
	}
	return out
}

// checkGoText checks comments and, outside tests, strings that are sentences.
func checkGoText(l *glossary.List, s *source) (out []violation) {
	for _, g := range s.tree.Comments {
		var text strings.Builder
		for i, c := range g.List {
			if i > 0 {
				text.WriteByte('\n')
			}
			if !strings.HasPrefix(c.Text, "//go:") && !strings.HasPrefix(c.Text, "//nolint") {
				text.WriteString(c.Text)
			}
		}
		out = append(out, checkText(l, s.path, s.set.Position(g.Pos()).Line, text.String())...)
	}
	if s.test() {
		return out
	}
	excused := s.excusedLines()
	for _, text := range s.strings() {
		out = append(out, text.check(l, s, excused)...)
	}
	return out
}

// joined is a string constant: the literals of a sum, of which a phrase may span two.
type joined []*ast.BasicLit

// strings returns the string constants of a file, without import paths and field tags.
func (s *source) strings() []joined {
	var out []joined
	seen := map[ast.Node]bool{}
	var add func(e ast.Expr, to joined) joined
	add = func(e ast.Expr, to joined) joined {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				seen[e] = true
				return add(e.Y, add(e.X, to))
			}
		case *ast.BasicLit:
			if e.Kind == token.STRING {
				seen[e] = true
				return append(to, e)
			}
		}
		return append(to, nil) // a value that is not known here
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			if n.Tag != nil {
				seen[n.Tag] = true
			}
		case *ast.BinaryExpr, *ast.BasicLit:
			if !seen[n] {
				out = append(out, add(n.(ast.Expr), nil))
			}
		}
		return true
	})
	return out
}

// check finds words to avoid in a string that has several words. The violation is at the literal in which the word begins.
func (j joined) check(l *glossary.List, s *source, excused map[int]bool) (out []violation) {
	var text strings.Builder
	starts := make([]int, len(j))
	for i, lit := range j {
		starts[i] = text.Len()
		if lit == nil {
			text.WriteString("\x00")
			continue
		}
		value, err := strconv.Unquote(lit.Value)
		if err == nil && !excused[s.set.Position(lit.Pos()).Line] {
			text.WriteString(value)
		}
	}
	if !strings.ContainsAny(text.String(), " \n\t") {
		return nil
	}
	for _, f := range l.Check(text.String()) {
		i := len(j) - 1
		for starts[i] > f.Offset || j[i] == nil {
			i--
		}
		line := s.set.Position(j[i].Pos()).Line
		if strings.HasPrefix(j[i].Value, "`") {
			line += strings.Count(text.String()[starts[i]:f.Offset], "\n")
		}
		out = append(out, violation{s.path, line, f.Message})
	}
	return out
}

// checkLogKeys checks the keys of log records: of the methods of a logger, which take a message first, and of With.
func checkLogKeys(l *glossary.List, s *source) (out []violation) {
	if s.test() {
		return nil
	}
	excused := s.excusedLines()
	ast.Inspect(s.tree, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		first := map[string]int{
			"Debug":        1,
			"Info":         1,
			"Warn":         1,
			"Error":        1,
			"DebugContext": 2,
			"InfoContext":  2,
			"WarnContext":  2,
			"ErrorContext": 2,
			"Log":          3,
			"LogAttrs":     3,
			"With":         0,
			"String":       0,
			"Any":          0,
			"Int":          0,
			"Bool":         0,
			"Duration":     0,
		}
		from, ok := first[method.Sel.Name]
		if !ok {
			return true
		}
		for i := from; i < len(call.Args); i += 2 {
			lit, ok := call.Args[i].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || excused[s.set.Position(lit.Pos()).Line] {
				continue
			}
			key, _ := strconv.Unquote(lit.Value)
			if write, ok := l.Has(key); ok {
				out = append(out, s.violation(lit.Pos(), "%q as a log key: write %q", key, write))
			}
		}
		return true
	})
	return out
}

// checkGoNames checks the names that a file declares, and its own.
func checkGoNames(l *glossary.List, s *source) (out []violation) {
	excused := s.excusedLines()
	check := func(id *ast.Ident) {
		if id == nil || excused[s.set.Position(id.Pos()).Line] {
			return
		}
		l.Find(nameWords(id.Name), func(_ int, word, write string) {
			out = append(out, s.violation(id.Pos(), "%s: %q in a name: write %q", id.Name, word, write))
		})
	}
	l.Find(strings.ReplaceAll(strings.TrimSuffix(path.Base(s.path), ".go"), "_", " "), func(_ int, word, write string) {
		out = append(out, violation{s.path, 0, fmt.Sprintf("%q in the file's name: write %q", word, write)})
	})
	l.Find(s.tree.Name.Name, func(_ int, word, write string) {
		out = append(out, violation{s.path, 0, fmt.Sprintf("%q in the package's name: write %q", word, write)})
	})
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Name)
		case *ast.TypeSpec:
			check(n.Name)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				check(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				check(id)
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					check(id)
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					check(id)
				}
			}
		}
		return true
	})
	return out
}

// nameWords splits a name at its capitals: "tellHTTPServer" is "tell http server".
func nameWords(name string) string {
	var out strings.Builder
	r := []rune(name)
	for i, c := range r {
		if i > 0 && unicode.IsUpper(c) && (!unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) || c == '_' {
			out.WriteByte(' ')
		}
		if c != '_' {
			out.WriteRune(unicode.ToLower(c))
		}
	}
	return out.String()
}

// words reads docs/glossary.md.
func words(t *testing.T) *glossary.Glossary {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := glossary.Parse(string(text))
	if err != nil {
		t.Fatalf("docs/glossary.md: %v", err)
	}
	return g
}

// TestGlossary compares names, comments, messages, log keys and documents with docs/glossary.md, and their spelling with
// American English. WORDS names a part of the tree to check alone.
func TestGlossary(t *testing.T) {
	words := words(t)
	var all []violation
	for _, name := range tracked(t) {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		switch {
		case err != nil: // deleted and not committed
		case name == "docs/glossary.md",
			strings.HasPrefix(name, "internal/archtest/") && strings.HasSuffix(name, "glossary_test.go"):
		case !strings.HasSuffix(name, ".go"):
			all = append(all, checkProse(words.Text, name, string(text))...)
		case !strings.Contains("/"+name, "/testdata/"): // of every module of the repository
			if s := parse(t, name, string(text)); !s.generated() {
				all = append(all, checkGoText(words.Text, s)...)
				all = append(all, checkGoNames(words.Names, s)...)
				all = append(all, checkLogKeys(words.Keys, s)...)
			}
		}
	}
	below := func(name, part string) bool { return name == part || strings.HasPrefix(name, part+"/") }
	only := os.Getenv("WORDS")
	for _, b := range all {
		if only == "" || below(b.path, only) {
			t.Error(b)
		}
	}
}

// tracked lists the files that git knows or would add.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	var names []string
	for name := range bytes.SplitSeq(bytes.TrimRight(out, "\x00"), []byte{0}) {
		names = append(names, string(name))
	}
	return names
}

// TestGlossaryFinds checks that a word to avoid is found in each kind of text and name, at its place, and nowhere else.
func TestGlossaryFinds(t *testing.T) {
	words := words(t)
	s := parse(t, "internal/x/mourn.go", header+`
// Package x waits until nobody is
// told anything. "nobody" is quoted, as is `+"`anew`"+`.
package x

// Give writes it anew.
func mourned(whomever string, reportBrought int) string {
	anew := "whoever" // glossary: the protocol's own word
	for brought := range whomever {
		_ = brought
	}
	log.Info("told " + "away", "error", err, "kept", "dir", "err", "machine")
	log.With("dir", "x") // glossary: another program's key
	fmt.Fprintln(w, "\nMACHINE", "was given" +
		" back", "was given" + anew + " back")
	return "the way out is " + anew + ", a behaviour"
}
`)
	var got []string
	for _, b := range slices.Concat(
		checkGoText(words.Text, s), checkGoNames(words.Names, s), checkLogKeys(words.Keys, s),
	) {
		got = append(got, b.String())
	}
	for _, b := range checkProse(words.Text, "a.md", "# A\nIt is `anew`.\n\n```\nanew\n```\nOn a virtual machine, a machine\nis judged.\n") {
		got = append(got, b.String())
	}
	for _, b := range checkProse(words.Text, "a.sh", "echo anew\n# whoever\nlocal x # a neighbour\n") {
		got = append(got, b.String())
	}
	for _, b := range checkProse(words.Text, "a.yaml", "- message: \"it is\n    anew\"\n  name: anew\n") {
		got = append(got, b.String())
	}
	want := []string{
		`internal/x/mourn.go:3: "nobody"`,
		`internal/x/mourn.go:4: "told"`,
		`internal/x/mourn.go:7: "anew"`,
		`internal/x/mourn.go:13: "told"`,
		`internal/x/mourn.go:15: "machine"`,
		`internal/x/mourn.go:15: "was given"`,
		`internal/x/mourn.go:16: "was given"`,
		`internal/x/mourn.go:17: "way out"`,
		`internal/x/mourn.go:17: "behaviour" is British`,
		`internal/x/mourn.go: "mourn" in the file's name`,
		`internal/x/mourn.go:8: mourned: "mourned" in a name`,
		`internal/x/mourn.go:8: whomever: "whomever" in a name`,
		`internal/x/mourn.go:8: reportBrought: "brought" in a name`,
		`internal/x/mourn.go:10: brought: "brought" in a name`,
		`internal/x/mourn.go:13: "error" as a log key: write "err"`,
		`a.md:7: "machine"`,
		`a.md:8: "judged"`,
		`a.sh:2: "whoever"`,
		`a.sh:3: "neighbour" is British`,
		`a.yaml:2: "anew"`,
	}
	for i, w := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], w) {
			t.Fatalf("finding %d is not %q:\n%s", i, w, strings.Join(got, "\n"))
		}
	}
	if len(got) != len(want) {
		t.Errorf("unexpected: %q", got[len(want):])
	}
}
