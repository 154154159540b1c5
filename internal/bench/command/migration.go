// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/migration"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/gap"
	"github.com/weft-net/weft/internal/vm/guestimage"
)

func newBenchMigrationCmd(env ui.Env) *cobra.Command {
	var cfg migration.Config
	var output string
	cmd := &cobra.Command{
		Use:   "migration",
		Short: "Measure what a live migration costs the connections of a virtual machine",
		Long: `Builds three nodes with agents in throw-away network namespaces, boots a guest under QEMU on the first one,
and has it go to the second one and back, with its address and under a network policy. A peer on the third node
notes when packets of the guest arrive, of a flow of one each 5 ms, and lines of it on connections that the peer has
begun. A connection that ends is an error. Needs root, qemu-system-x86_64 and busybox (static), and weft's own
programs beside this one (--bin-dir); the guest is made of a distribution's kernel, which is fetched where it is not
in the cache. The machine's own network is not touched.

Keys of -o json: rows [{what, n, median, min, max}] in milliseconds, resets, notes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(output); err != nil {
				return err
			}
			programs := filepath.Dir(env.Self)
			image, err := guestimage.Usual(programs)
			if err != nil {
				return err
			}
			image.Say = func(format string, args ...any) { fmt.Fprintf(env.Stderr, format+"\n", args...) }
			if cfg.Image, err = image.Make(cmd.Context()); err != nil {
				return err
			}
			cfg.Agent, cfg.Speaker, cfg.Log = agentProgram(env), filepath.Join(programs, "weft-guest"),
				slog.New(slog.DiscardHandler)
			cfg.Went = func(n int, g gap.Gap) {
				fmt.Fprintf(
					env.Stderr, "migration %d: first packet after %s, blackout %s, answers %s, stream %s, %d packets lost\n", n+1,
					g.First, g.Blackout, g.Answers, g.Stream, g.Lost,
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
	fl.IntVarP(&cfg.N, "n", "n", 10, "migrations")
	fl.StringVar(&cfg.Encapsulation, "encapsulation", "vxlan",
		"how packets between the nodes travel: vxlan, ipip, wireguard, udp or host-gw")
	fl.StringVar((*string)(&cfg.Binding), "binding", string(model.VMDirect), "the machine's binding: direct or masquerade")
	fl.StringVar(&cfg.BinDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "directory of weft's own plugins")
	fl.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
