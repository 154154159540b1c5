// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/archtest/glossary"
	"github.com/weft-net/weft/internal/cli/ui"
)

// TestHelpWords compares the help that each command prints with docs/glossary.md, whichever program runs the command. No
// flag has an empty default there.
func TestHelpWords(t *testing.T) {
	text, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	words, err := glossary.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	env := Env{Getenv: func(string) string { return "" }}
	checkHelp(t, words.Text, newRoot(env), "")
	for _, p := range programs(t) {
		checkHelp(t, words.Text, p.root(env), p.single)
	}
}

// checkHelp checks the help of a command and of those below it. single is the command of weft that the program is.
func checkHelp(t *testing.T, words *glossary.List, cmd *cobra.Command, single string) {
	t.Helper()
	name := cmd.CommandPath()
	if single != "" {
		name = strings.Replace(name, "weft", "weft "+single, 1)
	}
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			checkHelp(t, words, sub, single)
		}
	}

	printed := help(t, cmd)
	for _, f := range words.Check(printed) {
		t.Errorf("%s --help: %s", name, f.Message)
	}
	if noDefault := regexp.MustCompile(`.*\(default (\[\])?\)`).FindString(printed); noDefault != "" {
		t.Errorf("%s --help prints a default where there is none: %s", name, noDefault)
	}
}

// help returns what --help prints, without the spelling of flags, arguments, keys of -o json and the examples' paths,
// which are not changed.
func help(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.InitDefaultHelpFlag()
	if err := cmd.Help(); err != nil {
		t.Fatal(err)
	}
	return glossary.Blank(out.String(), regexp.MustCompile(`(?s)Keys of -o json.*?\n\n|--[a-z][a-z-]*|\b[A-Z][A-Z_]+\b|\S+/\S+`))
}

// TestHelpWordsFinds checks that a word to avoid is found in summaries, descriptions, flags and subcommands.
func TestHelpWordsFinds(t *testing.T) {
	text, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	words, err := glossary.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	root := &cobra.Command{Use: "x MACHINE", Long: "It is told\nanew.", Run: func(*cobra.Command, []string) {}}
	root.Flags().String("machine", "", "`MACHINE` that nobody has")
	sub := &cobra.Command{Use: "y", Short: "Seize it", Run: root.Run}
	root.AddCommand(sub)
	ui.Prepare(root, Env{})
	var got []string
	for _, f := range words.Text.Check(help(t, root)) {
		word, _, _ := strings.Cut(f.Message, ":")
		got = append(got, word)
	}
	if want := []string{`"told"`, `"anew"`, `"seize"`, `"nobody"`}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
