// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/migration"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/downtime"
	"github.com/weft-net/weft/internal/vm/guestimage"
)

func newBenchMigrationCmd(env ui.Env) *cobra.Command {
	var cfg migration.Config
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "migration",
		Short: "Measure the downtime of live migrations of a VM",
		Long: `Creates three nodes with agents in temporary network namespaces, boots a guest under QEMU on the first one,
and migrates it to the second one and back, with its address and under a network policy. A peer on the third node
records the arrival of the guest's packets, of a flow of one every 5 ms, and of its lines on connections that the
peer has opened. A connection that is closed is an error. Needs root, qemu-system-x86_64, busybox (static), and
weft's programs in the directory of this one (--bin-dir for plugins); the guest uses a distribution's kernel, which is
downloaded if it is not cached. The host's network is not changed.

Keys of -o json: rows [{what, n, median, min, max}] in milliseconds, resets, notes.`,
		Example: "  weft bench migration\n" +
			"  weft bench migration --binding masquerade --encapsulation host-gw -n 4",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(samples(cfg.N)); err != nil {
				return err
			}
			bindings := []string{string(model.VMDirect), string(model.VMMasquerade), string(model.VMBridge)}
			if !slices.Contains(bindings, string(cfg.Binding)) {
				return ui.UsageError(model.NotOneOf("--binding", string(cfg.Binding), bindings...))
			}
			if known := []string{"vxlan", "ipip", "wireguard", "udp", "host-gw"}; !slices.Contains(known, cfg.Encapsulation) {
				return ui.UsageError(model.NotOneOf("--encapsulation", cfg.Encapsulation, known...))
			}
			programs := filepath.Dir(env.Self)
			image, err := guestimage.DefaultConfig(programs)
			if err != nil {
				return err
			}
			image.Progress = func(format string, args ...any) { fmt.Fprintf(env.Stderr, format+"\n", args...) }
			if cfg.Image, err = image.Build(cmd.Context()); err != nil {
				return err
			}
			cfg.Agent, cfg.Speaker, cfg.Log = agentProgram(env), filepath.Join(programs, "weft-guest"),
				slog.New(slog.DiscardHandler)
			cfg.OnMigration = func(n int, g downtime.Measurement) {
				fmt.Fprintf(
					env.Stderr, "migration %d: first packet after %s, blackout %s, answers %s, stream %s, %d packets lost\n", n+1,
					g.FirstPacket, g.Blackout, g.Replies, g.Stream, g.Lost,
				)
			}
			report, err := migration.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.IntVarP(&cfg.N, "n", "n", 10, "`COUNT` of migrations")
	fl.StringVar(&cfg.Encapsulation, "encapsulation", "vxlan",
		"`BACKEND` between the nodes: vxlan, ipip, wireguard, udp or host-gw")
	fl.StringVar(
		(*string)(&cfg.Binding),
		"binding",
		string(model.VMDirect),
		"`BINDING` of the VM: direct, masquerade or bridge",
	)
	fl.StringVar(&cfg.BinDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}
