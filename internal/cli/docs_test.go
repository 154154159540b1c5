// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
)

// documented returns the commands that docs/reference/commands.md lists.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| (`weft .*`) \\|")
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		group := ""
		for i, name := range strings.Split(m[1], ", ") {
			name = strings.Trim(name, "`")
			if i == 0 {
				group = name[:strings.LastIndex(name, " ")]
			} else {
				name = group + " " + name
			}
			listed[name] = true
		}
	}
	return listed
}

// TestCommandsAreDocumented checks that docs/reference/commands.md lists exactly the commands that there are.
func TestCommandsAreDocumented(t *testing.T) {
	documented := documented(t)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && (!c.HasAvailableSubCommands() || c.Name() == "mesh") {
			if !documented[c.CommandPath()] {
				t.Errorf("%q is missing in docs/reference/commands.md", c.CommandPath())
			}
			delete(documented, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "completion" && sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk(newRoot(Env{Getenv: func(string) string { return "" }}))
	for name := range documented {
		t.Errorf("docs/reference/commands.md has %q, which is not a command", name)
	}
}

// TestEveryCommandAnswers checks that each command of docs/reference/commands.md prints help with its documented name,
// whichever program runs it.
func TestEveryCommandAnswers(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(documented(t))) {
		words := strings.Fields(name)[1:]
		for _, args := range [][]string{append(slices.Clone(words), "--help"), append([]string{"help"}, words...)} {
			var stdout, stderr bytes.Buffer
			code := run(t, Env{Args: args, Stdout: &stdout, Stderr: &stderr})
			usage := "Usage:\n  " + name
			if name == "weft flanneld" || name == "weft dhcp daemon" { // their usage is that of the program they replace
				usage = ""
			}
			if said := stdout.String() + stderr.String(); code != 0 || !strings.Contains(said, usage) || len(said) < 100 {
				t.Errorf("weft %v: exit code %d, not %q in\n%s", args, code, usage, said)
			}
		}
	}
}

// TestForwardedCommands checks that weft lists all commands of the other programs, with the summaries that they have
// there.
func TestForwardedCommands(t *testing.T) {
	env := Env{Getenv: func(string) string { return "" }}
	mine := newRoot(env)
	find := func(root *cobra.Command, words []string) *cobra.Command {
		at, rest, err := root.Find(words)
		if err != nil || len(rest) > 0 || at == root && len(words) > 0 {
			return nil
		}
		return at
	}
	has := map[string]bool{}
	for _, x := range externals() {
		has[x.path] = true
		root := programs(t)[x.program].root(env)
		words := strings.Fields(x.path)
		if x.single {
			words = nil
		}
		there, here := find(root, words), find(mine, strings.Fields(x.path))
		if there == nil || here == nil {
			t.Errorf("%s: in weft %v, in %s %v", x.path, here, x.program, there)
			continue
		}
		var subcommands []string
		for _, sub := range there.Commands() {
			if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
				subcommands = append(subcommands, sub.Name())
			}
		}
		slices.Sort(subcommands)
		if strings.Join(subcommands, " ") != x.subcommands {
			t.Errorf("%s: the program has the subcommands %q, weft lists %q", x.path, subcommands, x.subcommands)
		}
		if here.Short != x.short || !x.hidden() && there.Short != x.short || x.hidden() != there.Hidden {
			t.Errorf("%s is described as %q by weft and as %q by %s", x.path, here.Short, there.Short, x.program)
		}
	}
	for name, p := range programs(t) {
		var walk func(c *cobra.Command, words []string)
		walk = func(c *cobra.Command, words []string) {
			if has[strings.Join(words, " ")] {
				return
			}
			if len(c.Commands()) == 0 {
				t.Errorf("%s has %q, which weft does not list", name, words)
			}
			for _, sub := range c.Commands() {
				// An agent executes its program with tunnels itself.
				if sub.Name() != "help" && sub.Name() != "completion" && !(name == "weft-agent" && sub.Name() == "tunnels") {
					walk(sub, append(slices.Clone(words), sub.Name()))
				}
			}
		}
		words := []string(nil)
		if p.single != "" {
			words = []string{p.single}
		}
		walk(p.root(env), words)
	}
}

// TestSummaries checks that each command has a summary that begins with a verb in the imperative and has no period, a
// description that says more, and two examples.
func TestSummaries(t *testing.T) {
	notImperative := regexp.MustCompile(`^(What|A|An|The|Everything|weft|[a-z].*|\w+(ows|ists|ints|uns|ecks|ops)) |\.$`)
	env := Env{Getenv: func(string) string { return "" }}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if !sub.Hidden && (sub.Short == "" || notImperative.MatchString(sub.Short)) {
				t.Errorf("%s: summary %q is not in the imperative", sub.CommandPath(), sub.Short)
			}
			_, external := isExternal(sub)
			if !sub.Hidden && !external && sub.Name() != "help" && sub.Name() != "completion" {
				described(t, sub)
				walk(sub)
			}
		}
	}
	for _, p := range programs(t) {
		described(t, p.root(env))
		walk(p.root(env))
	}
	described(t, newRoot(env))
	walk(newRoot(env))
}

// isExternal returns the command of another program that a command of weft executes. That program's has the description.
func isExternal(c *cobra.Command) (external, bool) {
	path := strings.TrimPrefix(c.CommandPath(), "weft ")
	for _, x := range externals() {
		if c.DisableFlagParsing && path == x.path {
			return x, true
		}
	}
	return external{}, false
}

// described checks the description and the examples of a command.
func described(t *testing.T, c *cobra.Command) {
	t.Helper()
	if len(c.Long) < len(c.Short)+20 || strings.TrimSuffix(c.Long, ".") == c.Short {
		t.Errorf("%s: description %q does not say more than the summary", c.CommandPath(), c.Long)
	}
	if n := len(strings.Split(c.Example, "\n")); n < 2 {
		t.Errorf("%s: %d examples, want 2 at least", c.CommandPath(), n)
	}
}

// TestExamples checks that each example can be typed: its command and flags exist, the flags accept their values, the
// number of arguments fits, and the files of the tree that it names exist.
func TestExamples(t *testing.T) {
	env := Env{Getenv: func(string) string { return "" }}
	examples := map[string]string{} // by command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			examples[strings.TrimSpace(line)] = c.CommandPath()
		}
		for _, sub := range c.Commands() {
			if sub.Name() != "completion" {
				walk(sub)
			}
		}
	}
	walk(newRoot(env))
	for _, p := range programs(t) {
		root := p.new(strings.TrimSpace("weft "+p.single), env)
		ui.Prepare(root, env)
		walk(root)
	}
	if len(examples) < 120 {
		t.Errorf("only %d examples", len(examples))
	}
	for _, line := range slices.Sorted(maps.Keys(examples)) {
		if err := parseExample(t, line); err != nil {
			t.Errorf("%s: example %q: %v", examples[line], line, err)
		}
	}
}

// parseExample parses an example's command line as its program does.
func parseExample(t *testing.T, line string) error {
	t.Helper()
	words := shellWords(line)
	if words[0] != "weft" {
		return errors.New("does not begin with weft")
	}
	for _, word := range words {
		_, value, found := strings.Cut(word, "=")
		if !found {
			value = word
		}
		for file := range strings.SplitSeq(value, ",") {
			if strings.HasPrefix(file, "examples") || strings.HasPrefix(file, "test/") {
				if _, err := os.Stat("../../" + file); err != nil {
					return err
				}
			}
		}
	}
	root, args := newRoot(Env{Getenv: func(string) string { return "" }}), words[1:]
	if program, argv, external := externalFor(args); external && program != pluginProgram {
		root, args = programs(t)[program].root(Env{Getenv: func(string) string { return "" }}), argv[1:]
	}
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if c.DisableFlagParsing { // its flags are those of package flag: the other tests have their names
		return nil
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// shellWords splits a command line at spaces that are not in quotes.
func shellWords(line string) (words []string) {
	word, quote, open := "", rune(0), false
	for _, r := range line {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, open = r, true
		case quote == 0 && r == ' ':
			if word != "" || open {
				words = append(words, word)
			}
			word, open = "", false
		default:
			word += string(r)
		}
	}
	return append(words, word)
}
