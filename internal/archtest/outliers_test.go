// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Limits above which a type may do more than one thing, and a package may have more than one reason to change. They are
// not laws: make outliers prints what exceeds them.
const (
	methodsOfType  = 25
	changingFields = 12
	filesOfPackage = 15
	longFunction   = 80 // lines
	edgesBack      = 10
)

// outlier is a type, a package or a function that is far bigger than the others.
type outlier struct {
	what string // "methods of a type"
	name string
	n    int
}

// TestOutliers prints what exceeds the limits. It never fails because of them.
func TestOutliers(t *testing.T) {
	found := outliers(sources(t))
	if len(found) == 0 {
		t.Log("nothing exceeds the limits")
	}
	for _, o := range found {
		t.Logf("%-28s %4d  %s", o.what, o.n, o.name)
	}
}

func outliers(tree []*source) []outlier {
	packages := map[string][]*source{}
	for _, s := range tree {
		if !s.test() && !s.generated() && s.in("internal", "cmd", "api", "pkg") {
			packages[s.dir] = append(packages[s.dir], s)
		}
	}
	var out []outlier
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		files := packages[dir]
		add := func(what, name string, n, limit int) {
			if n > limit {
				out = append(out, outlier{what, strings.TrimSuffix(dir+"."+name, "."), n})
			}
		}
		add("files of a package", "", len(files), filesOfPackage)
		methods, fields := methodsAndFields(files)
		for name, n := range methods {
			add("methods of a type", name, n, methodsOfType)
		}
		for name, n := range fields {
			add("changing fields of a type", name, n, changingFields)
		}
		for _, s := range files {
			for _, d := range s.tree.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					add("lines of a function", f.Name.Name, s.set.Position(f.End()).Line-s.set.Position(f.Pos()).Line+1, longFunction)
				}
			}
		}
		edges, back := edgesBetweenFiles(files)
		add("edges that point back", fmt.Sprintf("(of %d)", edges), back, edgesBack)
	}
	slices.SortFunc(out, func(a, b outlier) int {
		return cmp.Or(strings.Compare(a.what, b.what), b.n-a.n, strings.Compare(a.name, b.name))
	})
	return out
}

// methodsAndFields counts each type's methods, and its fields that a method assigns.
func methodsAndFields(files []*source) (methods, fields map[string]int) {
	methods, fields = map[string]int{}, map[string]int{}
	changed := map[string]bool{}
	for _, s := range files {
		for _, d := range s.tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || len(f.Recv.List) == 0 {
				continue
			}
			typ := receiver(f)
			methods[typ]++
			if len(f.Recv.List[0].Names) == 0 || f.Body == nil {
				continue
			}
			self := f.Recv.List[0].Names[0].Name
			for _, field := range assigned(f.Body, self) {
				if key := typ + "." + field; !changed[key] {
					changed[key] = true
					fields[typ]++
				}
			}
		}
	}
	return methods, fields
}

// receiver returns the name of a method's receiver type.
func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// assigned returns the fields of self that a body writes: by assignment, by ++ and --, through their elements, and by
// delete and clear.
func assigned(body ast.Node, self string) []string {
	var out []string
	written := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.SelectorExpr:
				if id, ok := x.X.(*ast.Ident); ok {
					if id.Name == self {
						out = append(out, x.Sel.Name)
					}
					return
				}
				e = x.X
			default:
				return
			}
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.AssignStmt:
			for _, e := range x.Lhs {
				written(e)
			}
		case *ast.IncDecStmt:
			written(x.X)
		case *ast.CallExpr:
			if id, ok := x.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && len(x.Args) > 0 {
				written(x.Args[0])
			}
		}
		return true
	})
	return out
}

// edgesBetweenFiles counts the pairs of files of a package of which one uses a declaration of the other, and those pairs
// that point back: without them the files would form layers. It compares names, without types: a method counts if only
// one file of the package declares one of that name. The layers are found greedily, so back may be slightly too big.
func edgesBetweenFiles(files []*source) (edges, back int) {
	uses := usesBetweenFiles(files)
	for _, to := range uses {
		edges += len(to)
	}
	place := map[int]int{}
	for i, f := range layers(uses, len(files)) {
		place[f] = i
	}
	for from, tos := range uses {
		for to := range tos {
			if place[from] > place[to] {
				back++
			}
		}
	}
	return edges, back
}

// usesBetweenFiles returns for each file, by index, the files whose declarations it names.
func usesBetweenFiles(files []*source) []map[int]bool {
	declared := map[string]int{}
	for i, s := range files {
		for _, name := range declarations(s.tree) {
			if old, ok := declared[name]; ok && old != i {
				declared[name] = -1 // ambiguous
				continue
			}
			declared[name] = i
		}
	}
	uses := make([]map[int]bool, len(files))
	for i, s := range files {
		uses[i] = map[int]bool{}
		use := func(name string) {
			if j, ok := declared[name]; ok && j >= 0 && j != i {
				uses[i][j] = true
			}
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.SelectorExpr:
				use("." + x.Sel.Name)
				ast.Inspect(x.X, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						use(id.Name)
					}
					return true
				})
			case *ast.Ident:
				use(x.Name)
			}
			return true
		})
	}
	return uses
}

// declarations returns the top-level names of a file; a method's has a dot before it.
func declarations(f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		switch x := d.(type) {
		case *ast.FuncDecl:
			if x.Recv != nil {
				out = append(out, "."+x.Name.Name)
			} else {
				out = append(out, x.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range x.Specs {
				switch y := spec.(type) {
				case *ast.TypeSpec:
					out = append(out, y.Name.Name)
				case *ast.ValueSpec:
					for _, id := range y.Names {
						out = append(out, id.Name)
					}
				}
			}
		}
	}
	return out
}

// layers orders files so that few edges point from a later one to an earlier one (Eades, Lin and Smyth 1993): files
// without uses last, files that are not used first, and of the rest the one first that uses most and is used least.
func layers(uses []map[int]bool, n int) []int {
	left := map[int]bool{}
	for i := range n {
		left[i] = true
	}
	degrees := func(i int) (out, in int) {
		for j := range left {
			if uses[i][j] {
				out++
			}
			if uses[j][i] {
				in++
			}
		}
		return out, in
	}
	var first, last []int
	for len(left) > 0 {
		best, score := -1, 0
		end := false
		for _, i := range slices.Sorted(maps.Keys(left)) {
			out, in := degrees(i)
			if out == 0 {
				best, end = i, true
				break
			}
			if in == 0 {
				best = i
				break
			}
			if best < 0 || out-in > score {
				best, score = i, out-in
			}
		}
		delete(left, best)
		if end {
			last = append(last, best)
		} else {
			first = append(first, best)
		}
	}
	slices.Reverse(last)
	return append(first, last...)
}

// TestOutliersFind checks a package with a type that is too big, a function that is too long, and two files that use each
// other.
func TestOutliersFind(t *testing.T) {
	var big strings.Builder
	big.WriteString("package a\ntype Big struct{ x, y int }\n")
	for i := range methodsOfType + 1 {
		fmt.Fprintf(&big, "func (b *Big) m%d() { b.x++; lower() }\n", i)
	}
	big.WriteString("func long() {\n" + strings.Repeat("\n", longFunction) + "}\n")
	tree := []*source{
		parse(t, "internal/a/big.go", big.String()),
		parse(t, "internal/a/lower.go", "package a\nfunc lower() { (&Big{}).m0() }\n"),
		parse(t, "internal/a/a_test.go", "package a\nfunc test() {"+strings.Repeat("\n", 2*longFunction)+"}\n"),
	}
	want := []outlier{
		{"lines of a function", "internal/a.long", longFunction + 2},
		{"methods of a type", "internal/a.Big", methodsOfType + 1},
	}
	if got := outliers(tree); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if methods, fields := methodsAndFields(tree[:2]); methods["Big"] != methodsOfType+1 || fields["Big"] != 1 {
		t.Errorf("methods %v and changing fields %v, want %d and 1 of Big", methods, fields, methodsOfType+1)
	}
	if edges, back := edgesBetweenFiles(tree[:2]); edges != 2 || back != 1 {
		t.Errorf("%d edges, %d back; want 2 and 1: each file uses the other", edges, back)
	}
	chain := []*source{
		parse(t, "internal/b/x.go", "package b\nfunc x() { y(); z() }\n"),
		parse(t, "internal/b/y.go", "package b\nfunc y() { z() }\n"),
		parse(t, "internal/b/z.go", "package b\nfunc z() {}\n"),
	}
	if edges, back := edgesBetweenFiles(chain); edges != 3 || back != 0 {
		t.Errorf("%d edges, %d back; want 3 and 0: they form layers", edges, back)
	}
}
