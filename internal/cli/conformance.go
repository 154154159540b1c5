// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

func newConformanceCmd(env Env) *cobra.Command {
	return programCommand(env, "cni-conformance", &cobra.Command{
		Use:   "conformance --bin-dir DIR",
		Short: "Judge CNI plugins of any vendor by the words of the specification",
	})
}
