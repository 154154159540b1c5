// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestExamplesOfTheDocuments checks that each command line of weft in a block of a document can be typed: its command
// and flags exist, the flags accept their values, and the number of arguments fits. test/scripts executes those that
// need no cluster.
func TestExamplesOfTheDocuments(t *testing.T) {
	pages := []string{"../../README.md"}
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" && filepath.Base(path) != "commands.md" { // those are TestExamples'
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commandLines(string(text)) {
			if strings.Contains(c.text, " [") { // a synopsis
				continue
			}
			checked++
			if err := parseExample(t, c.text); err != nil {
				t.Errorf("%s:%d: %q: %v", strings.TrimPrefix(page, "../../"), c.line, c.text, err)
			}
		}
	}
	if checked < 150 {
		t.Errorf("only %d command lines", checked)
	}
}

// commandLine is a command line of weft in a document.
type commandLine struct {
	line int
	text string
}

// commandLines returns the command lines of weft in the blocks of a document, fenced or indented, without what a shell
// makes of them: prompts, comments, pipes, redirections. Lines that end with a backslash continue on the next one.
func commandLines(text string) (out []commandLine) {
	prompt := regexp.MustCompile(`^\s*(?:[$#] )?(?:sudo )?(weft [a-z-]+(?: .*)?)$`)
	fenced, start, open := false, 0, ""
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced, open = !fenced, ""
			continue
		}
		switch {
		case open != "":
			open += " " + trimmed
		case fenced && prompt.MatchString(line) || strings.HasPrefix(line, "    ") && prompt.MatchString(line):
			start, open = i+1, prompt.FindStringSubmatch(line)[1]
		default:
			continue
		}
		if rest, more := strings.CutSuffix(open, "\\"); more {
			open = strings.TrimSpace(rest)
			continue
		}
		out, open = append(out, commandLine{start, simpleCommand(open)}), ""
	}
	return out
}

// simpleCommand returns a shell's command line up to the first comment or operator that is not in quotes.
func simpleCommand(line string) string {
	quote := rune(0)
	for i, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case strings.ContainsRune("|&;<>", r), r == '#' && strings.HasSuffix(line[:i], " "):
			return strings.TrimRight(strings.TrimRight(line[:i], "12"), " ")
		}
	}
	return strings.TrimSpace(line)
}

func TestCommandLines(t *testing.T) {
	const page = "weft is prose\n\n    weft status   # all nodes\n\n```sh\nsudo weft lab graph -o svg 2>x\n$ weft lab exec n -- \\\n" +
		"  sh -c 'a | b' || true\noutput\n```\n"
	want := "[{3 weft status} {6 weft lab graph -o svg} {7 weft lab exec n -- sh -c 'a | b'}]"
	if got := fmt.Sprint(commandLines(page)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
