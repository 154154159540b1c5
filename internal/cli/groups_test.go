// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCommandGroups checks that weft --help has a section for each group, with all commands of weft in them and nothing
// in a section of its own.
func TestCommandGroups(t *testing.T) {
	var out bytes.Buffer
	if code := run(t, Env{Args: []string{"--help"}, Stdout: &out, Stderr: &out}); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	var want []string
	for _, g := range commandGroups() {
		want = append(want, g.title)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^(\w+) Commands:$`).FindAllStringSubmatch(out.String(), -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("sections %v, want %v:\n%s", got, want, out.String())
	}
	listed := 0
	for _, c := range newRoot(Env{Getenv: func(string) string { return "" }}).Commands() {
		if c.Hidden {
			continue
		}
		if listed++; c.GroupID == "" {
			t.Errorf("%s is in no group", c.CommandPath())
		}
	}
	for _, g := range commandGroups() {
		listed -= len(g.commands)
	}
	if listed != 2 { // help and completion
		t.Errorf("the groups list %d commands too few", listed-2)
	}
}

// TestDocumentedGroups checks that docs/reference/commands.md has the sections of weft --help, each with its commands.
func TestDocumentedGroups(t *testing.T) {
	b, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	text, first := string(b), regexp.MustCompile("(?m)^\\| `weft ([a-z-]+)")
	for _, g := range commandGroups() {
		_, section, found := strings.Cut(text, "\n## "+g.title+"\n")
		if !found {
			t.Errorf("docs/reference/commands.md has no section %q", g.title)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var got []string
		for _, m := range first.FindAllStringSubmatch(section, -1) {
			got = append(got, m[1])
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, g.commands) {
			t.Errorf("docs/reference/commands.md: section %q has the commands of %v, want %v", g.title, got, g.commands)
		}
	}
}
