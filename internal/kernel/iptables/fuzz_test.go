// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"
	"testing"
)

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"":                              nil,
		" -j  X ":                       {"-j", "X"},
		`--comment "a \"b\" \\ c" -j X`: {"--comment", `a "b" \ c`, "-j", "X"},
		`--comment ""`:                  {"--comment", ""},
		`a"b c"d`:                       {"ab cd"},
	} {
		if have, err := Words(text); err != nil || !slices.Equal(have, want) {
			t.Errorf("%q: %q, %v", text, have, err)
		}
	}
	for _, bad := range []string{`"`, `a "b`, "a\nb", "a\x00"} {
		if have, err := Words(bad); err == nil {
			t.Errorf("%q: %q", bad, have)
		}
	}
}

// FuzzParse: any output of a program is parsed or refused, and the parsed words of a rule are in its text.
func FuzzParse(f *testing.F) {
	f.Add(
		"*nat\n:PREROUTING ACCEPT [0:0]\n:X - [1:2]\n-A X -d 10.0.0.0/8 -m comment --comment \"a \\\"b\\\"\" -j ACCEPT\nCOMMIT\n",
	)
	f.Add("# Warning: iptables-legacy tables present\n[1:2] -A X -j Y\n")
	f.Fuzz(func(t *testing.T, s string) {
		table, err := parse([]byte(s))
		if err != nil {
			return
		}
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				if !strings.Contains(s, r.Text) {
					t.Errorf("rule %q is not in the text", r.Text)
				}
				if c.find(r.Words) < 0 {
					t.Errorf("rule %q is not found", r.Text)
				}
			}
		}
	})
}
