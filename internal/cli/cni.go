// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/cniplan"
)

// newCNICmd returns the parent of the commands for network configurations.
func newCNICmd(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cni",
		Short: "Check and use CNI network configurations",
		Long: `Validates network configurations, and executes the plugins of a network as a container runtime does: with the same
environment variables, the same cache of results and, like cnitool, without a container. The plugins need root.`,
		Example: "  weft cni validate /etc/cni/net.d/00-weft.conflist\n" +
			"  weft cni add /etc/cni/net.d/00-weft.conflist /run/netns/pod1",
	}
	cmd.AddCommand(newCNIValidateCmd(env), cniplan.NewCmd(env))
	cmd.AddCommand(newCNICallCmds(env)...)
	return cmd
}
