// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

func newDHCPCmd(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dhcp",
		Short: "Manage DHCP leases of containers",
		Long: `Runs the daemon of the IPAM plugin dhcp, which keeps the leases of containers while no plugin runs. Nodes with an agent
do not need it: the agent acquires and renews leases itself.`,
		Example: "  weft dhcp daemon\n  weft dhcp daemon -pidfile /run/weft/dhcp.pid -timeout 5s",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "daemon [FLAGS]",
		Short: "Run the daemon of the IPAM plugin dhcp, for nodes without an agent",
		Long: `Acquires, renews and releases DHCP leases for the IPAM plugin dhcp, weft's and the reference one, until SIGTERM. The
flags are those of the reference plugin's daemon (weft dhcp daemon -help). The agent manages leases itself and needs no
daemon. The daemon is the program weft-plugin, called as dhcp.

Leases are stored in -statedir and renewed after a restart.`,
		Example:            "  weft dhcp daemon\n  weft dhcp daemon -pidfile /run/weft/dhcp.pid -timeout 5s",
		DisableFlagParsing: true, // -pidfile is written with one dash
		RunE: func(_ *cobra.Command, args []string) error {
			return execProgram(env, pluginProgram, append([]string{"dhcp", "daemon"}, args...))
		},
	})
	return cmd
}
