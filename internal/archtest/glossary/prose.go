// SPDX-License-Identifier: Apache-2.0

package glossary

import (
	"path"
	"regexp"
	"strings"
)

var (
	hashComment  = regexp.MustCompile(`(?m)(?:^|[ \t])#.*$`)
	slashComment = regexp.MustCompile(`(?s)/\*.*?\*/|(?m:(?:^|[ \t])//[^\n]*$)`)
	tag          = regexp.MustCompile(`(?s)<[a-zA-Z/?!][^>]*>|\{\{.*?\}\}`)
	fence        = regexp.MustCompile("(?ms)^ *```([a-z]*)$.*?^ *```$")
	generated    = regexp.MustCompile(`(?s)<!-- (?:written by|Made of) .*?(?:<!-- end of the table -->|\z)`)
	// userField is a field of YAML that users see: messages of admission rules, descriptions of alerts and of fields.
	userField = regexp.MustCompile(`^( *(?:- )?)(?:message|description|summary|help):\s*(.*)$`)
	rendered  = regexp.MustCompile(`\A# Rendered from `)
)

// Prose returns a file's text for readers, with spaces in the place of everything else, so that offsets and lines stay:
// comments, text between tags, a document without what programs write into it, and messages in YAML. It returns false
// for a file that has no such text.
func Prose(name, text string) (string, bool) {
	fixture := strings.Contains("/"+name, "/testdata/")
	switch ext := path.Ext(name); {
	case ext == ".md":
		return document(text), true
	case ext == ".yaml" || ext == ".yml":
		if rendered.MatchString(text) { // its sources are read
			return "", false
		}
		return keep(text, append(hashComment.FindAllStringIndex(text, -1), userFields(text)...)), true
	case ext == ".sh" || path.Base(name) == "Makefile":
		return keep(text, hashComment.FindAllStringIndex(text, -1)), true
	case fixture:
		return "", false
	case ext == ".txt" || ext == ".awk" || ext == ".gitignore" || ext == ".editorconfig" || strings.HasPrefix(text, "#!"):
		return keep(text, hashComment.FindAllStringIndex(text, -1)), true
	case ext == ".css" || ext == ".js":
		return keep(text, slashComment.FindAllStringIndex(text, -1)), true
	case ext == ".html" || ext == ".svg":
		return Blank(text, tag), true
	}
	return "", false
}

// document blanks generated tables and fenced code, but not the comments of the latter.
func document(text string) string {
	text = Blank(text, generated)
	return fence.ReplaceAllStringFunc(text, func(s string) string {
		switch fence.FindStringSubmatch(s)[1] {
		case "sh", "yaml", "ini":
			return keep(s, hashComment.FindAllStringIndex(s, -1))
		case "go":
			return keep(s, slashComment.FindAllStringIndex(s, -1))
		}
		return keep(s, nil)
	})
}

// userFields returns where the values of fields that users see are. A value continues in deeper lines.
func userFields(text string) (out [][]int) {
	at, indent := 0, -1
	for line := range strings.Lines(text) {
		end := at + len(strings.TrimRight(line, "\n"))
		from := at + len(line) - len(strings.TrimLeft(line, " "))
		if indent >= 0 && from < end && from-at <= indent {
			indent = -1
		}
		if m := userField.FindStringSubmatchIndex(text[at:end]); indent < 0 && m != nil {
			indent, from = m[3], at+m[4]
		}
		if indent >= 0 && from < end {
			if strings.ContainsRune(`"'`, rune(text[from])) { // a quoted value is text as well
				from++
			}
			out = append(out, []int{from, end})
		}
		at += len(line)
	}
	return out
}

// keep blanks a text outside of some places.
func keep(text string, places [][]int) string {
	b := []byte(Blank(text, everything))
	for _, p := range places {
		copy(b[p[0]:p[1]], text[p[0]:p[1]])
	}
	return string(b)
}
