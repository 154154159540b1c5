// SPDX-License-Identifier: Apache-2.0

package glossary

import (
	"os"
	"strings"
	"testing"
)

// TestRows checks that each word of docs/glossary.md is found, and that each of its exceptions is not.
func TestRows(t *testing.T) {
	text, err := os.ReadFile("../../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*List{g.Text, g.Names, g.Keys} {
		for word := range l.write {
			if len(l.Check("If it "+word+" here")) != 1 {
				t.Errorf("%q is not found", word)
			}
			for _, phrase := range l.except[word] {
				if strings.Contains(" "+phrase+" ", " "+word+" ") && len(l.Check("If it "+phrase+" here")) > 0 {
					t.Errorf("%q is found in its exception %q", word, phrase)
				}
			}
		}
		for word, except := range l.except {
			for _, phrase := range except {
				if !l.any.MatchString(phrase) {
					t.Errorf("%q, an exception of %q, has no word to avoid", phrase, word)
				}
			}
		}
	}
}

// TestBritish checks that British spelling is found, and that the American one is not taken for it.
func TestBritish(t *testing.T) {
	l := parseTable("| anew | again | |\n")
	for words, want := range map[string]bool{
		"behaviour colour coloured colouring neighbouring neighbourhood favourite honoured labour centre centred metres": true,
		"licence defence artefact cancelled labelling marshalled unmarshalling dialled dialling levelled fulfil":         true,
		"recognise unrecognised organisation reorganise initialiser serialises deserialise normalised synchronise":       true,
		"authorised unauthorised categorise analyse analysed analysing":                                                  true,
		"whilst amongst towards grey greyed judgement learnt spelt programme practise":                                   true,

		"behavior color colored coloring neighboring neighborhood favorite honored labor center centered meters":      false,
		"license defense artifact canceled labeling marshaled unmarshaling dialed dialing leveled fulfill controlled": false,
		"recognize unrecognized organization reorganize initializer serializes raise promise precise premises":        false,
		"authorized analyze analysis paralysis exercise advertised revised supervised compromise otherwise":           false,
		"while among toward gray judgment learned spelled program practice calling installed fulfilled rolled":        false,
	} {
		for word := range strings.FieldsSeq(words) {
			if got := l.Check("It is " + word + "."); len(got) > 0 != want {
				t.Errorf("%s: found %v, want %v", word, got, want)
			}
		}
	}
}

// TestProse checks what of a file readers see.
func TestProse(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a.yaml", "# one\nkind: Pod # two\nspec:\n- message: \"three four\"\n  other: no\n  description: >-\n    five\n\n    six\n  name: no", "# one # two three four\" >- five six"},
		{"a.yaml", "description: one\n  two\nkind: no\n", "one two"},
		{"a.yaml", "# Rendered from b\nmessage: no\n", ""},
		{"a.sh", "echo no # one\n# two\necho ${#no[@]} no\n", "# one # two"},
		{"a/testdata/a.txt", "# no\n", ""},
		{"a.txt", "# one\nexec no\n", "# one"},
		{"init", "#!/bin/sh\nno # one\n", "#!/bin/sh # one"},
		{"init", "no # no\n", ""},
		{"a.css", "/* one\ntwo */ no: #fff;\n", "/* one two */"},
		{"a.js", "no(); // one\nno(\"http://no\");\n", "// one"},
		{"a.html", "<!doctype html><a title=\"no\">one</a>{{.No}}\n<p>\ntwo</p>", "one two"},
		{"a.svg", "<svg><text x='1'>one</text></svg>", "one"},
		{"a.json", "{}", ""},
		{"a.md", "one\n```\nno\n```\ntwo\n```sh\nno # three\n```\n```go\nno() // four\n```\n<!-- written by x -->\nno\n<!-- end of the table -->\nfive\n", "one two # three // four five"},
	} {
		prose, ok := Prose(c.name, c.text)
		if got := strings.Join(strings.Fields(prose), " "); got != c.want || ok && len(prose) != len(c.text) {
			t.Errorf("%s: %q is read as %q, want %q", c.name, c.text, got, c.want)
		}
	}
}
