// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
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
	var watch *printer.Watch
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the labs of this host",
		Long: "Lists the labs of this host, wherever their state directories are: with their age, the number of nodes and the phase.\n" +
			"The phase is up, starting, degraded (a process is dead) or incomplete (a command that created it was killed).",
		Example: "  weft lab list\n" +
			"  weft lab list -o wide --no-headers\n" +
			"  weft lab list --watch\n" +
			"  weft lab list -o json",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var partial error // labs that cannot be read, while others can
			err := watch.Show(cmd.Context(), env.Stdout, env.Stderr, func(context.Context) (printer.Result, error) {
				all, err := lab.List()
				partial = err
				return labTable(output, all), nil
			})
			if err == nil && !watch.On() {
				err = partial
			}
			return err
		},
	}
	output = printer.Objects(cmd.Flags(), true)
	watch = output.Watch(cmd.Flags())
	return cmd
}

func labTable(output *printer.Format, all []lab.Listed) printer.Result {
	table := printer.Table{Header: []string{"NAME", "AGE", "NODES", "PHASE", "DIRECTORY", "CREATED"}, Wide: 1, Ages: "AGE"}
	for _, l := range all {
		dir := l.Dir
		if l.Process != 0 {
			dir += fmt.Sprintf(" (in the mount namespace of process %d)", l.Process)
		}
		table.Row(l.Name, l.Name, printer.Age(time.Since(l.Created)), strconv.Itoa(l.Nodes), l.Phase, dir,
			l.Created.Format(time.RFC3339))
	}
	r := printer.Result{Document: append([]lab.Listed{}, all...), Tables: []printer.Table{table}}
	if len(all) == 0 && !output.Document() {
		r.Warnings = []string{"no labs on this host"}
	}
	return r
}
