// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

func newDHCPCmd(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "dhcp", Short: "Keep DHCP leases for containers"}
	cmd.AddCommand(&cobra.Command{
		Use:   "daemon [FLAGS]",
		Short: "Keep DHCP leases for IPAM plugins of type dhcp where there is no agent",
		Long: `Keep DHCP leases for plugins that ask on a socket, until SIGTERM: weft's own plugin dhcp, and the reference
plugin of that name, whose daemon's flags it has (weft dhcp daemon -help). An agent keeps leases itself and needs no
daemon. It is the program weft-plugin beside weft, by the name dhcp.

Leases are remembered in -statedir; after a restart their renewal goes on.`,
		DisableFlagParsing: true, // -pidfile is written with one dash
		RunE: func(_ *cobra.Command, args []string) error {
			return become(env, pluginProgram, append([]string{"dhcp", "daemon"}, args...))
		},
	})
	return cmd
}
