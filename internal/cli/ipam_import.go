// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/objects"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

// importTries is how often an import is planned anew when somebody else changes a pool meanwhile.
const importTries = 5

func newIPAMImportCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	what := importSource{env: env}
	var output string
	var dry bool
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Take over the addresses that whereabouts, Calico or host-local have given",
		Long: "Reads what another network has given, and reserves it in the AddressPools that weft's agents use: each address until its pod is\n" +
			"deleted. Everything is read and checked before the first pool is written, and each pool is written in one request. Run it as\n" +
			"often as you like: what is there already is not touched. The other network's objects and files are only read.\n\n" +
			"  whereabouts  IPPools, OverlappingRangeIPReservations and NodeSlicePools\n" +
			"  calico       IPPools, IPReservations, IPAMConfigurations and IPAMBlocks; the blocks of running pods become blocks of their nodes\n" +
			"  host-local   on each node, as root: the files below --dir; needs pools of the cluster's network that have the addresses",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return ui.UsageError(fmt.Errorf("output %q is neither text nor json", output))
			}
			if err := what.check(); err != nil {
				return err
			}
			objects, err := from.Open()
			if err != nil {
				return err
			}
			var plan planned
			for try := 1; ; try++ {
				if plan, err = what.plan(cmd.Context(), objects); err != nil {
					return err
				}
				if dry {
					break
				}
				var f *model.Fault
				if err = plan.Apply(cmd.Context(), objects); errors.As(err, &f) && f.Code == model.CodeTryAgain &&
					try < importTries {
					continue
				}
				if err != nil {
					return err
				}
				break
			}
			if output == "json" {
				return ui.PrintJSON(env.Stdout, plan)
			}
			return printImport(env.Stdout, plan, dry)
		},
	}
	from.Flags(cmd, &output)
	what.flags(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be written")
	return cmd
}

// planned is an import before it is done.
type planned interface {
	Apply(ctx context.Context, objects store.Objects) error
}

// importSource says from whom addresses are taken over.
type importSource struct {
	env             Env
	from, node, dir string
}

func (s *importSource) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.from, "from", "whereabouts", "`WHOM`: whereabouts, calico or host-local")
	cmd.Flags().StringVar(&s.node, "node", "", "host-local: `NAME` of this node (default: $NODE_NAME)")
	cmd.Flags().StringVar(&s.dir, "dir", "/var/lib/cni/networks", "host-local: `DIR` of its networks")
}

func (s *importSource) check() error {
	if s.from != "whereabouts" && s.from != "calico" && s.from != "host-local" {
		return ui.UsageError(fmt.Errorf("--from %q is none of whereabouts, calico, host-local", s.from))
	}
	if s.node == "" {
		s.node = s.env.Getenv("NODE_NAME")
	}
	if s.from == "host-local" && s.node == "" {
		return ui.UsageError(errors.New("host-local's files are this node's: say its name by --node"))
	}
	return nil
}

func (s *importSource) plan(ctx context.Context, objects store.Objects) (planned, error) {
	switch s.from {
	case "calico":
		return controller.PlanCalico(ctx, objects, rand.Reader)
	case "host-local":
		seats, err := hostLocalSeats(s.dir)
		if err != nil {
			return nil, err
		}
		return controller.PlanHostLocal(ctx, objects, rand.Reader, s.node, seats)
	}
	return audit.PlanImport(ctx, objects, os.ReadFile)
}

// hostLocalSeats reads host-local's files: each is named by an address, and has the container and the interface that it
// is for.
func hostLocalSeats(dir string) ([]controller.Seat, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var seats []controller.Seat
	for _, path := range files {
		a, err := netip.ParseAddr(filepath.Base(path))
		if err != nil {
			continue // the lock, and what was given last
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // given back meanwhile
		}
		if err != nil {
			return nil, model.Faultf(model.CodeIO, "run it as root", "host-local's file: %w", err)
		}
		lines := strings.Fields(string(b))
		seat := controller.Seat{Network: filepath.Base(filepath.Dir(path)), Addr: a.Unmap()}
		if len(lines) > 0 {
			seat.ContainerID = lines[0]
		}
		if len(lines) > 1 {
			seat.IfName = lines[1]
		}
		seats = append(seats, seat)
	}
	return seats, nil
}

func printImport(w io.Writer, plan planned, dry bool) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	added, had := 0, 0
	var leftOut, doubts []string
	pool := func(name string, regions []model.AddressRegion, reserved []model.ReservedAddress, were int) {
		for _, r := range regions {
			fmt.Fprintf(table, "%s\t%s\tregion in blocks of /%d\n", name, r.CIDR, r.BlockSize)
		}
		for _, r := range reserved {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, r.Addr, dash(r.For), dash(r.IfName))
		}
		added, had = added+len(reserved), had+were
	}
	switch plan := plan.(type) {
	case audit.Import:
		for _, p := range plan.Pools {
			pool(p.Pool, p.Regions, p.Reserved, p.Had)
		}
		leftOut, doubts = plan.LeftOut, plan.Doubts
	case controller.Import:
		for _, p := range plan.Pools {
			pool(p.Pool, p.Regions, p.Reserved, p.Had)
		}
		for _, b := range plan.Blocks {
			fmt.Fprintf(table, "%s\t%s\tblock of node %s\n", b.Pool, b.CIDR, b.Node)
			for _, a := range slices.SortedFunc(maps.Keys(b.Ceded), netip.Addr.Compare) {
				node, _, _ := strings.Cut(b.Ceded[a], "/")
				fmt.Fprintf(table, "%s\t%s\tceded to node %s\n", b.Pool, a, node)
			}
		}
		leftOut, doubts = plan.LeftOut, plan.Doubts
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, s := range leftOut {
		fmt.Fprintf(w, "left out: %s\n", s)
	}
	for _, s := range doubts {
		fmt.Fprintf(w, "look at: %s\n", s)
	}
	did := "reserved"
	if dry {
		did = "to reserve (nothing was written)"
	}
	_, err := fmt.Fprintf(w, "%d addresses %s, %d were there, %d left out\n", added, did, had, len(leftOut))
	return err
}
