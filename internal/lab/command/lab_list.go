// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
)

func newLabListCmd(env ui.Env) *cobra.Command {
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the labs of this host",
		Long: "Lists the labs of this host, wherever their state directories are: with their age, the number of nodes and the phase.\n" +
			"The phase is up, starting, degraded (a process is dead) or incomplete (a command that created it was killed).",
		Example: "  weft lab list\n" +
			"  weft lab list -o wide --no-headers\n" +
			"  weft lab list -o json",
		Args: ui.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := lab.List()
			if output.Document() {
				if all == nil {
					all = []lab.Listed{}
				}
				if printed := output.Print(env.Stdout, all); printed != nil {
					return printed
				}
				return err
			}
			if printed := printLabs(env, output, all); printed != nil {
				return printed
			}
			return err
		},
	}
	output = printer.Objects(cmd.Flags(), true)
	return cmd
}

func printLabs(env ui.Env, output *printer.Format, all []lab.Listed) error {
	if len(all) == 0 {
		fmt.Fprintln(env.Stderr, "weft: no labs on this host")
		return nil
	}
	table := printer.Table{Header: []string{"NAME", "AGE", "NODES", "PHASE", "DIRECTORY", "CREATED"}, Wide: 1}
	for _, l := range all {
		dir := l.Dir
		if l.Process != 0 {
			dir += fmt.Sprintf(" (in the mount namespace of process %d)", l.Process)
		}
		table.Row(l.Name, l.Name, printer.Age(time.Since(l.Created)), strconv.Itoa(l.Nodes), l.Phase, dir,
			l.Created.Format(time.RFC3339))
	}
	return output.Tables(env.Stdout, table)
}
