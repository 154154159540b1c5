// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"text/tabwriter"
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
			if printed := printLabs(env, all); printed != nil {
				return printed
			}
			return err
		},
	}
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

func printLabs(env ui.Env, all []lab.Listed) error {
	if len(all) == 0 {
		fmt.Fprintln(env.Stderr, "weft: no labs on this host")
		return nil
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tAGE\tNODES\tPHASE\tDIRECTORY")
	for _, l := range all {
		dir := l.Dir
		if l.Process != 0 {
			dir += fmt.Sprintf(" (in the mount namespace of process %d)", l.Process)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", l.Name, age(time.Since(l.Created)), l.Nodes, l.Phase, dir)
	}
	return w.Flush()
}

// age returns a duration as kubectl prints ages, with one or two units.
func age(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
