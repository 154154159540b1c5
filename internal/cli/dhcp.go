// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
)

func newDHCPCmd(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "dhcp", Short: "Keep DHCP leases for containers"}
	cmd.AddCommand(&cobra.Command{
		Use:   "daemon [FLAGS]",
		Short: "Keep DHCP leases for IPAM plugins of type dhcp where there is no agent",
		Long: `Keep DHCP leases for plugins that ask on a socket, until SIGTERM: weft's own plugin dhcp, and the reference
plugin of that name, whose daemon's flags it has (weft dhcp daemon -help). An agent keeps leases itself and needs no
daemon.

Leases are remembered in -statedir; after a restart their renewal goes on.`,
		DisableFlagParsing: true, // -pidfile is written with one dash
		RunE: func(cmd *cobra.Command, args []string) error {
			err := lease.Command(cmd.Context(), args, lease.Outside{
				Name: "weft dhcp daemon", Getenv: env.Getenv, Stderr: env.Stderr, Now: time.Now, Random: rand.Reader,
			})
			if errors.Is(err, lease.ErrUsage) {
				return ui.UsageError(err)
			}
			return err
		},
	})
	return cmd
}
