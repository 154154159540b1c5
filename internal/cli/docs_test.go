// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every verb stands in docs/commands.md, and nothing stands there that is no verb.
func TestCommandsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
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
			documented[name] = true
		}
	}
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
