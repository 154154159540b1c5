// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// documented are the commands that docs/commands.md lists.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("../../docs/commands.md")
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

// Every verb stands in docs/commands.md, and nothing stands there that is no verb.
func TestCommandsAreDocumented(t *testing.T) {
	documented := documented(t)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && (!c.HasSubCommands() || c.Name() == "mesh") {
			if !documented[c.CommandPath()] {
				t.Errorf("%q is missing in docs/commands.md", c.CommandPath())
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
		t.Errorf("docs/commands.md has %q, which is no verb", name)
	}
}

// Every command of docs/commands.md can be had as it is written there, whichever program it is: it describes itself by
// its own name.
func TestEveryCommandAnswers(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(documented(t))) {
		words := strings.Fields(name)[1:]
		for _, args := range [][]string{append(slices.Clone(words), "--help"), append([]string{"help"}, words...)} {
			var stdout, stderr bytes.Buffer
			code := run(t, Env{Args: args, Stdout: &stdout, Stderr: &stderr})
			usage := "Usage:\n  " + name
			if name == "weft flanneld" || name == "weft dhcp daemon" { // by the names that their flags have
				usage = ""
			}
			if said := stdout.String() + stderr.String(); code != 0 || !strings.Contains(said, usage) || len(said) < 100 {
				t.Errorf("weft %v: exit code %d, not %q in\n%s", args, code, usage, said)
			}
		}
	}
}

// What weft says of the commands that other programs are is what they say themselves, and it knows all of them.
func TestHandedOn(t *testing.T) {
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
	for _, h := range handedOn() {
		has[h.words] = true
		root := programs(t)[h.program].root(env)
		words := strings.Fields(h.words)
		if h.alone {
			words = nil
		}
		there, here := find(root, words), find(mine, strings.Fields(h.words))
		if there == nil || here == nil {
			t.Errorf("%s: in weft %v, in %s %v", h.words, here, h.program, there)
			continue
		}
		var verbs []string
		for _, sub := range there.Commands() {
			if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
				verbs = append(verbs, sub.Name())
			}
		}
		slices.Sort(verbs)
		if strings.Join(verbs, " ") != h.verbs {
			t.Errorf("%s: the program has the verbs %q, weft knows %q", h.words, verbs, h.verbs)
		}
		if here.Short != h.short || !h.hidden() && there.Short != h.short || h.hidden() != there.Hidden {
			t.Errorf("%s is described as %q by weft and as %q by %s", h.words, here.Short, there.Short, h.program)
		}
	}
	for name, p := range programs(t) {
		var walk func(c *cobra.Command, words []string)
		walk = func(c *cobra.Command, words []string) {
			if has[strings.Join(words, " ")] {
				return
			}
			if len(c.Commands()) == 0 {
				t.Errorf("%s has %q, which weft does not know", name, words)
			}
			for _, sub := range c.Commands() {
				if sub.Name() != "help" && sub.Name() != "completion" {
					walk(sub, append(slices.Clone(words), sub.Name()))
				}
			}
		}
		words := []string(nil)
		if p.alone != "" {
			words = []string{p.alone}
		}
		walk(p.root(env), words)
	}
}
