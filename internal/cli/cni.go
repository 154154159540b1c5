// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// newCNICmd is the parent of the verbs about network configurations.
func newCNICmd(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "cni", Short: "Check and use CNI network configurations"}
	cmd.AddCommand(newCNIValidateCmd(env))
	cmd.AddCommand(newCNICallCmds(env)...)
	return cmd
}
