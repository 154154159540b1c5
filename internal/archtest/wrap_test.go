// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// lineWidth is how long a line of prose may be.
const lineWidth = 120

var (
	// unbreakable are parts of a line that stay whole: code and links.
	unbreakable = regexp.MustCompile("`[^`]*`|!?\\[(?:[^\\[\\]]|\\[[^\\]]*\\])*\\]\\([^)]*\\)")
	listItem    = regexp.MustCompile(`^ *(?:[-*+]|\d+\.) +`)
)

// longLines lists the numbers of the lines of prose that are longer than lineWidth and could be broken. Code, tables,
// headings and HTML are not prose.
func longLines(text string) []int {
	var out []int
	fenced, list, blank := false, false, true
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		indent := len(line) - len(trimmed)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
		case fenced || trimmed == "":
		case listItem.MatchString(line):
			list = true
		case indent == 0 && blank:
			list = false
		}
		blank = trimmed == ""
		code := fenced || indent >= 4 && !list
		if code || trimmed == "" || strings.ContainsAny(trimmed[:1], "|#<") || utf8.RuneCountInString(line) <= lineWidth {
			continue
		}
		body := strings.TrimSpace(strings.TrimPrefix(listItem.ReplaceAllString(line, ""), ">"))
		if strings.Contains(unbreakable.ReplaceAllString(body, "x"), " ") {
			out = append(out, i+1)
		}
	}
	return out
}

// TestProseIsWrapped: lines of prose are at most 120 characters long, so that a change of a document is a small
// difference.
func TestProseIsWrapped(t *testing.T) {
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		prose, _, _ := strings.Cut(string(text), "\n<!-- written by ") // what a script writes follows
		for _, line := range longLines(prose) {
			t.Errorf("%s:%d is longer than %d characters", file, line, lineWidth)
		}
	}
}

// TestLongLines: prose is found in paragraphs, lists and quotations; code, tables, headings and a single link are not.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("word ", 30)
	link := "[" + strings.Repeat("text ", 30) + "](there.md)"
	text := strings.Join([]string{
		long, "- " + long, "> " + long, "1. a", "   " + long, "", "    in a list " + long, "",
		"short", "", "    code " + long, "```", long, "```", "| " + long + " |", "# " + long, "<p " + long + ">", "- " + link, "(" + link + ").",
		"a " + link,
	}, "\n")
	want := []int{1, 2, 3, 5, 7, 20}
	got := longLines(text)
	if len(got) != len(want) {
		t.Fatalf("long lines %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("long lines %v, want %v", got, want)
		}
	}
}
