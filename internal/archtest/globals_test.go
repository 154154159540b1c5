// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/token"
	"strings"
)

// checkGlobal checks that package-level variables are sentinel errors, compiled patterns, embedded files, addresses,
// assertions, the name of an API group, or main.version.
func checkGlobal(tree []*source) []violation {
	var out []violation
	for _, s := range tree {
		if s.test() || s.client() {
			continue
		}
		for _, d := range s.tree.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				if !s.constantLike(g, v) {
					out = append(out, s.violation(v.Pos(), "package-level variable %s", v.Names[0].Name))
				}
			}
		}
	}
	return out
}

// constantLike reports whether a variable is never written.
func (s *source) constantLike(g *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		for i := 0; doc != nil && i < len(doc.List); i++ {
			if strings.HasPrefix(doc.List[i].Text, "//go:embed") {
				return true
			}
		}
	}
	if s.tree.Name.Name == "main" && v.Names[0].Name == "version" {
		return true
	}
	for i, name := range v.Names {
		if name.Name == "_" {
			continue
		}
		if i >= len(v.Values) || !constantCall(name.Name, v.Values[i]) {
			return false
		}
	}
	return true
}

func constantCall(name string, value ast.Expr) bool {
	if l, ok := value.(*ast.CompositeLit); ok {
		sel, ok := l.Type.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "GroupVersion" && name == "SchemeGroupVersion"
	}
	c, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	if !ok {
		return false
	}
	switch pkg.Name + "." + sel.Sel.Name {
	case "errors.New", "fmt.Errorf":
		return strings.HasPrefix(name, "Err") || strings.HasPrefix(name, "err")
	case "regexp.MustCompile", "netip.MustParsePrefix", "netip.MustParseAddr", "netip.AddrFrom4", "netip.IPv6Unspecified":
		return true
	}
	return false
}
