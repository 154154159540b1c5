// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
)

func newLabMigrateCmd(env ui.Env, f *labFlags) *cobra.Command {
	m := lab.Migrate{Self: env.Self, Env: childEnv(env), Say: say(env)}
	var output *string
	cmd := &cobra.Command{
		Use:   "migrate [NAMESPACE/]MACHINE NODE",
		Short: "Have a virtual machine go on on another node, and show what that cost a connection to it",
		Long: `Does what KubeVirt does when a virtual machine migrates: a pod on the other node awaits it, its state goes
there while it runs, and its pod here is deleted. It keeps its addresses. Meanwhile a pod or a node of the lab holds
a TCP connection to it, on which the guest says a line each 10 ms: none may be missing. The lab must be up with
--addresses pools.

Keys of -o json: machine, from, to, pod, address, peer, tookMs, pauseMs, resets.`,
		Example: "  weft lab up --from examples,examples/machines --addresses pools\n  weft lab migrate direct node1\n  weft lab migrate direct node3 --from default/web",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return ui.UsageError(errors.New("say who and where to: weft lab migrate MACHINE NODE"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if m.Dir, err = lab.At(f.dir); err != nil {
				return err
			}
			m.Machine, m.Node = args[0], args[1]
			went, err := m.Run(cmd.Context())
			switch {
			case err != nil:
				return err
			case *output == "json":
				return ui.PrintJSON(env.Stdout, went)
			}
			return printMachineMigration(env.Stdout, went)
		},
	}
	cmd.Flags().StringVar(&m.Peer, "from", "",
		"`NODE|POD` that holds a connection to the machine; one that it neither leaves nor goes to when not given")
	output = ui.OutputFlag(cmd, "text", "json")
	return cmd
}

func printMachineMigration(w io.Writer, m lab.Migration) error {
	_, err := fmt.Fprintf(w, "machine %s has gone from %s to %s (pod %s) in %.1f s\n"+
		"TCP from %s to %s, a line each 10 ms: %d resets, none missing, the longest pause %.0f ms\n",
		m.Machine, m.From, m.To, m.Pod, m.Took/1000, m.Peer, m.Address, m.Resets, m.Pause)
	return err
}
