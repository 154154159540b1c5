// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachCommand calls check for each visible command of all programs, with the words that follow weft on its command line.
func eachCommand(t *testing.T, check func(words []string, c *cobra.Command)) {
	t.Helper()
	env := Env{Getenv: func(string) string { return "" }}
	var walk func(c *cobra.Command, words []string)
	walk = func(c *cobra.Command, words []string) {
		check(words, c)
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "completion" && sub.Name() != "help" {
				walk(sub, append(slices.Clone(words), sub.Name()))
			}
		}
	}
	for _, c := range newRoot(env).Commands() {
		if c.Runnable() && !c.DisableFlagParsing && c.Name() != "help" && c.Name() != "completion" {
			walk(c, []string{c.Name()})
		}
	}
	for _, p := range programs(t) {
		words := []string(nil)
		if p.single != "" {
			words = []string{p.single}
		}
		walk(p.root(env), words)
	}
}

// TestFlagsHaveMetavariables checks that the help of each flag that takes a value names the value: a file, an address, a
// number of samples, and not Go's type.
func TestFlagsHaveMetavariables(t *testing.T) {
	flags := 0
	metavariable := regexp.MustCompile(`^\[?[A-Z]`)
	eachCommand(t, func(words []string, c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, usage := pflag.UnquoteUsage(f)
			if f.Hidden || f.Value.Type() == "bool" {
				return
			}
			if flags++; !metavariable.MatchString(name) || len(strings.Fields(usage)) < 2 {
				t.Errorf("weft %s: flag --%s %s: %q: name the value in backquotes", strings.Join(words, " "), f.Name, name, usage)
			}
		})
	})
	if flags < 150 {
		t.Errorf("only %d flags found", flags)
	}
}

// TestFlanneldFlagsHaveMetavariables checks the same for the flags with one dash: flanneld's and the DHCP daemon's.
func TestFlanneldFlagsHaveMetavariables(t *testing.T) {
	goType := regexp.MustCompile(`(?m)^  -(\S+) (string|int|value|duration|uint)$`)
	for _, args := range [][]string{{"flanneld", "--help"}, {"dhcp", "daemon", "--help"}} {
		var out bytes.Buffer
		if code := run(t, Env{Args: args, Stdout: &out, Stderr: &out}); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, out.String())
		}
		for _, m := range goType.FindAllStringSubmatch(out.String(), -1) {
			t.Errorf("weft %s: flag -%s takes a %s: name the value in backquotes", strings.Join(args, " "), m[1], m[2])
		}
	}
}

// TestHintsOfFlags checks that the hint for each flag without its value can be typed: it is an example that the flag
// accepts, not the metavariable.
func TestHintsOfFlags(t *testing.T) {
	hint := regexp.MustCompile(`(?m)^hint: for example (--?\S+) (.+)$`)
	eachCommand(t, func(words []string, c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.NoOptDefVal != "" {
				return
			}
			name := "--" + f.Name
			var out bytes.Buffer
			code := run(t, Env{Args: append(slices.Clone(words), name), Stdout: &out, Stderr: &out})
			m := hint.FindStringSubmatch(out.String())
			if code != 2 || m == nil {
				t.Errorf("weft %s %s: exit code %d: %s", strings.Join(words, " "), name, code, out.String())
				return
			}
			metavariable, _ := pflag.UnquoteUsage(f)
			if err := f.Value.Set(m[2]); err != nil || m[2] == metavariable || m[2] == "VALUE" {
				t.Errorf("weft %s: hint %q cannot be typed (%v)", strings.Join(words, " "), m[0], err)
			}
		})
	})
}
