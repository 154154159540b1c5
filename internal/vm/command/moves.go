// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/move"
)

// NewMoves is weft vm moves.
func NewMoves(env ui.Env) *cobra.Command {
	var stateDir, output string
	cmd := &cobra.Command{
		Use:   "moves",
		Short: "Show the machines whose addresses stay with them, as this node's agent sees them",
		Long: `Asks this node's agent which virtual machines have an attachment on this node whose addresses go with them:
"here" is where the machine runs, "awaited" where it is to migrate to, "left" where it was.

Keys of -o json: [{machine: {namespace, name}, attachment: {network, containerID, ifName}, addresses, state}].`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(output); err != nil {
				return err
			}
			all, err := move.AskMachines(cmd.Context(), adminapi.InStateDir(stateDir))
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(env.Stdout)
				e.SetIndent("", "  ")
				return e.Encode(all)
			}
			t := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "MACHINE\tSTATE\tADDRESSES\tNETWORK\tINTERFACE\tCONTAINER")
			for _, a := range all {
				var addrs []string
				for _, addr := range a.Addresses {
					addrs = append(addrs, addr.String())
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", a.Machine, a.State, strings.Join(addrs, ","), a.Key.Network,
					a.Key.IfName, a.Key.ContainerID)
			}
			return t.Flush()
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", config.Default().StateDir, "the agent's state directory")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// NewHere is weft vm here.
func NewHere() *cobra.Command {
	var stateDir, pod string
	cmd := &cobra.Command{
		Use:   "here NAMESPACE/MACHINE",
		Short: "Say that a machine that was awaited on this node runs here now",
		Long: `Has this node's agent switch a virtual machine's addresses to this node at once. That is not needed where
the machine says something itself, as QEMU does for its guests when they have migrated, nor where KubeVirt says so
in the machine's status. Where the machine has several pods on this node, --pod names the one that it runs in.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok || namespace == "" || name == "" {
				return ui.UsageError(
					model.Faultf(model.CodeInvalidConf, "as default/db", "machine %q is no namespace and name", args[0]),
				)
			}
			return move.SayHere(cmd.Context(), adminapi.InStateDir(stateDir), namespace, name, pod)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", config.Default().StateDir, "the agent's state directory")
	cmd.Flags().StringVar(&pod, "pod", "", "the machine's pod on this node; empty: the only one")
	return cmd
}
