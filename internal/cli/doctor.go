// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/doctor"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newDoctorCmd(env Env) *cobra.Command {
	var file, socket string
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose a node's network, with a hint for each finding",
		Long: `Checks the agent, its attachments, the runtime's plugins and configurations, the kernel and the peers. Settings are
those of the running agent or, without one, of the configuration file. Doctor changes nothing and needs no API server;
with --node it runs in the pod of that node's agent, or on that node of a lab.
The exit code is 1 if a finding is bad: CNI calls fail, or pods have no network. Keys of -o json: findings [{check,
level, says, hint}]; level is ok, warn, bad, or skip for a check that was not made.`,
		Example: "  weft doctor\n" +
			"  weft doctor --node node2\n" +
			"  weft doctor --config /etc/weft/weft.yaml -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := doctor.Local(cmd.Context(), file, cmp.Or(socket, env.Variable(ui.SocketVariable, "")))
			if err != nil {
				return err
			}
			all := doctor.Examine(cmd.Context(), node)
			if err := printFindings(output.Verdicts(env.Stdout, env.Getenv), all, output); err != nil {
				return err
			}
			if doctor.Worst(all) == doctor.Bad {
				return ui.Exit(1)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the agent's configuration `FILE` (default: "+doctor.DefaultConfig+
		" if it exists)")
	cmd.Flags().StringVar(&socket, "socket", "", "`PATH` of the agent's socket (default: the configuration's)")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	agents.OnNode(env, cmd, "config", "socket")
	return cmd
}

func printFindings(w io.Writer, all []doctor.Finding, output *printer.Format) error {
	if output.Document() {
		b, err := json.Marshal(struct {
			Findings []doctor.Finding `json:"findings"`
		}{all})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	for _, f := range all {
		if _, err := fmt.Fprintf(w, "%-4s  %-13s  %s\n", f.Level, f.Check, f.Message); err != nil {
			return err
		}
		if f.Hint != "" {
			if _, err := fmt.Fprintf(w, "      %-13s  hint: %s\n", "", f.Hint); err != nil {
				return err
			}
		}
	}
	return nil
}
