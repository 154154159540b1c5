// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/token"
	"path"
	"slices"
	"strings"
)

const header = "// SPDX-License-Identifier: Apache-2.0\n"

func checkHeader(tree []*source) []violation {
	var out []violation
	said := map[string]bool{}
	first := map[string]*source{}
	for _, s := range tree {
		if !strings.HasPrefix(s.text, header) && !s.generated() {
			out = append(out, violation{s.path, 1, "no SPDX line at the top"})
		}
		if s.test() || s.client() {
			continue
		}
		if first[s.dir] == nil {
			first[s.dir] = s
		}
		if s.tree.Doc != nil {
			said[s.dir] = true
			if s.tree.Name.Name != "main" && !strings.HasPrefix(s.tree.Doc.Text(), "Package "+s.tree.Name.Name+" ") {
				out = append(out,
					s.violation(s.tree.Doc.Pos(), "the package comment does not begin with \"Package %s\"", s.tree.Name.Name))
			}
		}
	}
	for dir, s := range first {
		if !said[dir] {
			out = append(out, s.violation(token.Pos(1), "no file of %s has a package comment", dir))
		}
	}
	slices.SortFunc(out, func(a, b violation) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func checkNames(tree []*source) []violation {
	var out []violation
	seen := map[string]bool{}
	for _, s := range tree {
		for dir := s.dir; dir != "." && dir != "/" && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			switch path.Base(dir) {
			case "util", "utils", "common", "helper", "helpers", "misc", "types":
				out = append(out, violation{dir, 0, "a folder of this name"})
			}
		}
	}
	return out
}
