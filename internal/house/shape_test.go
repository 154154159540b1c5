// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/token"
	"path"
	"slices"
	"strings"
)

const header = "// SPDX-License-Identifier: Apache-2.0\n"

func checkHeader(tree []*source) []breach {
	var out []breach
	said := map[string]bool{}
	first := map[string]*source{}
	for _, s := range tree {
		if !strings.HasPrefix(s.text, header) && !s.generated() {
			out = append(out, breach{s.path, 1, "no SPDX line at the top"})
		}
		if s.test() || s.client() {
			continue
		}
		if first[s.room] == nil {
			first[s.room] = s
		}
		if s.tree.Doc != nil {
			said[s.room] = true
			if s.tree.Name.Name != "main" && !strings.HasPrefix(s.tree.Doc.Text(), "Package "+s.tree.Name.Name+" ") {
				out = append(out,
					s.breach(s.tree.Doc.Pos(), "the package comment does not begin with \"Package %s\"", s.tree.Name.Name))
			}
		}
	}
	for room, s := range first {
		if !said[room] {
			out = append(out, s.breach(token.Pos(1), "no file of %s has a package comment", room))
		}
	}
	slices.SortFunc(out, func(a, b breach) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func checkNames(tree []*source) []breach {
	var out []breach
	seen := map[string]bool{}
	for _, s := range tree {
		for dir := s.room; dir != "." && dir != "/" && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			switch path.Base(dir) {
			case "util", "utils", "common", "helper", "helpers", "misc", "types":
				out = append(out, breach{dir, 0, "a folder of this name"})
			}
		}
	}
	return out
}
