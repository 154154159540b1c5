// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
)

func newLabCutCmd(env ui.Env, f *labFlags) *cobra.Command {
	var oneWay bool
	cmd := &cobra.Command{
		Use:   "cut [WIRE] [NODE [NODE]]",
		Short: "Drop the frames of a wire, of a node, or between two nodes",
		Long: "Drops all frames on a wire, those of a node on it, or those between two nodes, without any event for the nodes: carrier\n" +
			"stays, as with a switch that drops frames. Without WIRE it is every wire. `weft lab status` lists what is cut, and\n" +
			"`weft lab heal` undoes it.",
		Example: "  weft lab cut wire0 node1 node2\n" +
			"  weft lab cut wire1\n" +
			"  weft lab cut node1 node2 --one-way",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			return lab.Faults{Dir: d, Logf: logf(env)}.Cut(cmd.Context(), args, oneWay)
		},
	}
	cmd.Flags().BoolVar(&oneWay, "one-way", false, "drop only what the first node sends")
	cmd.ValidArgsFunction = complete.Every(f.wiresAndNodes)
	return cmd
}

func newLabUncutCmd(env ui.Env, f *labFlags) *cobra.Command {
	var oneWay, all bool
	cmd := &cobra.Command{
		Use:   "heal [WIRE] [NODE [NODE]]",
		Short: "Undo cuts of wires",
		Long: "Undoes the cuts of a wire, of a node, or between two nodes, which are named as for `weft lab cut`, or all. A part of a\n" +
			"larger cut cannot be healed.",
		Example: "  weft lab heal wire0 node1 node2\n" +
			"  weft lab heal --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return ui.Misusef("for example `weft lab heal wire0 node1 node2`", "name a link, or use --all")
			}
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			return lab.Faults{Dir: d, Logf: logf(env)}.Undo(cmd.Context(), args, oneWay)
		},
	}
	cmd.Flags().BoolVar(&oneWay, "one-way", false, "heal only what the first node sends")
	cmd.Flags().BoolVar(&all, "all", false, "heal all cuts")
	cmd.ValidArgsFunction = complete.Every(f.wiresAndNodes)
	return cmd
}
