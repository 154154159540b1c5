// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"strings"
)

// Lines describes the objects of a space for users; table prints a table in nft's syntax.
func (s Space) Lines(table func(Table) (string, error)) ([]string, error) {
	var out []string
	add := func(v fmt.Stringer) { out = append(out, v.String()) }
	for _, v := range s.Links {
		add(v)
	}
	for _, v := range s.Addrs {
		add(v)
	}
	for _, v := range s.Routes {
		add(v)
	}
	for _, v := range s.Rules {
		add(v)
	}
	for _, v := range s.Neighs {
		add(v)
	}
	for _, v := range s.FDBs {
		add(v)
	}
	for _, v := range s.Sysctls {
		add(v)
	}
	for _, v := range s.Joins {
		add(v)
	}
	for _, v := range s.Qdiscs {
		add(v)
	}
	for _, v := range s.Sources {
		add(v)
	}
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
