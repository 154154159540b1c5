// SPDX-License-Identifier: Apache-2.0

package command

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
)

func newLabRestartCmd(env ui.Env, f *labFlags) *cobra.Command {
	var wait time.Duration
	var runtime bool
	cmd := &cobra.Command{
		Use:   "restart NODE|POD",
		Short: "Restart a node's agent or runtime, or a pod",
		Long: "Restarts the agent of a node, with --runtime its sandbox runtime, also one that is dead; pods survive both. A pod (NAME or\n" +
			"NAMESPACE/NAME) is replaced by one of the same manifest on the same node.",
		Example: "  weft lab restart node1\n" +
			"  weft lab restart node1 --runtime\n" +
			"  weft lab restart default/web",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.changer(env, wait)
			if err != nil {
				return err
			}
			st, err := c.Dir.Status(cmd.Context())
			if err != nil {
				return err
			}
			at, err := st.Find(args[0])
			if err != nil {
				return err
			}
			if at.Pod == "" {
				r := lab.Restart{Dir: c.Dir, Self: env.Self, Env: childEnv(env), Logf: logf(env), Runtime: runtime}
				return r.Node(cmd.Context(), at.Node)
			}
			if runtime {
				return ui.Misusef("name a node", "--runtime: %s is a pod", at.Name)
			}
			return c.RestartPod(cmd.Context(), at.Namespace, at.Pod)
		},
	}
	cmd.Flags().BoolVar(&runtime, "runtime", false, "restart the sandbox runtime of the node")
	cmd.Flags().DurationVar(&wait, "wait", defaultWait, "`DURATION` to wait until the pod runs; 0: do not wait")
	cmd.ValidArgsFunction = complete.Args(f.nodesAndPods)
	return cmd
}
