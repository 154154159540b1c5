// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
)

// importTries is how often an import is planned anew when somebody else changes a pool meanwhile.
const importTries = 5

func newIPAMImportCmd(env Env) *cobra.Command {
	from := ipamSource{env: env}
	var output string
	var dry bool
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Reserve the addresses that whereabouts has given",
		Long: "Reads whereabouts' IPPools, OverlappingRangeIPReservations and NodeSlicePools, and reserves what they say is given in the\n" +
			"AddressPools that weft's agents use for the same networks: each address until its pod is deleted. Everything is read and\n" +
			"checked before the first pool is written, and each pool is written in one request. Run it as often as you like: what is\n" +
			"there already is not touched. Whereabouts' objects are only read.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("output %q is neither text nor json", output)}
			}
			objects, err := from.open()
			if err != nil {
				return err
			}
			var plan blocks.Import
			for try := 1; ; try++ {
				if plan, err = blocks.PlanImport(cmd.Context(), objects, os.ReadFile); err != nil {
					return err
				}
				if dry {
					break
				}
				var f *model.Fault
				if err = plan.Apply(cmd.Context(), objects); errors.As(err, &f) && f.Code == model.CodeTryAgain && try < importTries {
					continue
				}
				if err != nil {
					return err
				}
				break
			}
			if output == "json" {
				return printJSON(env.Stdout, plan)
			}
			return printImport(env.Stdout, plan, dry)
		},
	}
	from.flags(cmd, &output)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be written")
	return cmd
}

func printImport(w io.Writer, plan blocks.Import, dry bool) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	added, had := 0, 0
	for _, p := range plan.Pools {
		for _, r := range p.Regions {
			fmt.Fprintf(table, "%s\t%s\tregion in blocks of /%d\n", p.Pool, r.CIDR, r.BlockSize)
		}
		for _, r := range p.Reserved {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", p.Pool, r.Addr, dash(r.For), dash(r.IfName))
		}
		added, had = added+len(p.Reserved), had+p.Had
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, s := range plan.LeftOut {
		fmt.Fprintf(w, "left out: %s\n", s)
	}
	for _, s := range plan.Doubts {
		fmt.Fprintf(w, "look at: %s\n", s)
	}
	did := "reserved"
	if dry {
		did = "to reserve (nothing was written)"
	}
	_, err := fmt.Fprintf(w, "%d addresses %s, %d were there, %d left out\n", added, did, had, len(plan.LeftOut))
	return err
}
