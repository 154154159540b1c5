// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
)

func newLabMigrateCmd(env ui.Env, f *labFlags) *cobra.Command {
	m := lab.Migrate{Self: env.Self, Env: childEnv(env), Logf: logf(env)}
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "migrate [NAMESPACE/]VM NODE",
		Short: "Live-migrate a VM and measure the downtime",
		Long: "Live-migrates a VM as KubeVirt does: it starts a target pod on the other node, copies the VM's state there while the\n" +
			"VM runs, and deletes the source pod. The VM keeps its addresses. Meanwhile a pod or a node of the lab has a TCP\n" +
			"connection to the VM, on which the guest sends a line each 10 ms; none may be lost. The lab must be up with\n" +
			"--addresses pools.\n\n" +
			"Keys of -o json: machine, from, to, pod, address, peer, tookMs, pauseMs, resets.", // glossary: a key
		Example: "  weft lab migrate direct node1\n  weft lab migrate default/direct node3 --from default/web",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if m.Dir, err = lab.At(f.dir); err != nil {
				return err
			}
			m.VM, m.Node = args[0], args[1]
			result, err := m.Run(cmd.Context())
			switch {
			case err != nil:
				return err
			case output.Document():
				return output.Print(env.Stdout, result)
			}
			return printMigration(env.Stdout, result)
		},
	}
	cmd.Flags().StringVar(&m.Peer, "from", "",
		"`NODE|POD` that connects to the VM (default: one that is on neither the source nor the target node)")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	cmd.ValidArgsFunction = complete.Args(f.vms, f.nodes)
	complete.Flag(cmd, "from", f.nodesAndPods)
	return cmd
}

func printMigration(w io.Writer, m lab.Migration) error {
	_, err := fmt.Fprintf(w, "VM %s migrated from %s to %s (pod %s) in %.1f s\n"+
		"TCP from %s to %s, a line each 10 ms: %d resets, none lost, longest pause %.0f ms\n",
		m.VM, m.From, m.To, m.Pod, m.Took/1000, m.Peer, m.Address, m.Resets, m.Pause)
	return err
}
