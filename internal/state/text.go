// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"slices"
	"strings"
)

// Lines describes the objects of a space for users; table prints a table in nft's syntax.
func (s Space) Lines(table func(Table) (string, error)) ([]string, error) {
	out := slices.Concat(texts(s.Links), texts(s.Addrs), texts(s.Routes), texts(s.Rules), texts(s.Neighs), texts(s.FDBs),
		texts(s.Sysctls), texts(s.Joins), texts(s.Qdiscs), texts(s.Sources))
	for _, v := range s.IPTables {
		for _, c := range v.Chains {
			for _, r := range c.Rules {
				out = append(out, fmt.Sprintf("%s -t %s -A %s %s", v.Program(), v.Table, c.Name, r.Text))
			}
		}
	}
	for _, t := range s.Tables {
		text, err := table(t)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	return out, nil
}

func texts[T fmt.Stringer](all []T) []string {
	var out []string
	for _, v := range all {
		out = append(out, v.String())
	}
	return out
}
