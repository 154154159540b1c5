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
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plural"
)

// importTries is how often an import is planned again if another client changes a pool meanwhile.
const importTries = 5

func newIPAMImportCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	what := importSource{env: env}
	var output *printer.Format
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Import allocations of whereabouts, Calico or host-local into address pools",
		Long: "Reserves the addresses that another IPAM has allocated in weft's AddressPools, each until its pod is deleted. The import\n" +
			"reads and validates everything before it writes the first pool, and writes each pool in one request. It can be run\n" +
			"again: existing reservations are not changed. The other IPAM's objects and files are only read.\n\n" +
			"  whereabouts  IPPools, OverlappingRangeIPReservations and NodeSlicePools\n" +
			"  calico       IPPools, IPReservations, IPAMConfigurations and IPAMBlocks; blocks of running pods keep their node affinity\n" +
			"  host-local   on each node, as root: the files below --dir; the pools must have the addresses already",
		Example: "  weft ipam import --from calico --dry-run\n" +
			"  weft ipam import --from calico --calico-config /etc/calico/calicoctl.cfg --calico-policies policies.yaml\n" +
			"  weft ipam import\n" +
			"  weft ipam import --from host-local --node node1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
				if dryRun {
					break
				}
				var f *model.Error
				if err = plan.Apply(cmd.Context(), objects); errors.As(err, &f) && f.Code == model.CodeTryAgain &&
					try < importTries {
					continue
				}
				if err != nil {
					return err
				}
				break
			}
			if output.Document() {
				return output.Print(env.Stdout, plan)
			}
			return printImport(env.Stdout, plan, dryRun)
		},
	}
	from.DatastoreFlags(cmd)
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	what.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the import without writing it")
	return cmd
}

// planned is an import that can be applied.
type planned interface {
	Apply(ctx context.Context, objects store.Objects) error
}

// importSource is the IPAM to import from.
type importSource struct {
	env             Env
	from, node, dir string
	// calicoConfig is the path of calicoctl's configuration if Calico's objects are in an etcd.
	calicoConfig string
	// calicoPolicies is the path of the file that gets the policies of that etcd.
	calicoPolicies string
}

func (s *importSource) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.from, "from", "whereabouts", "`IPAM` to import from: whereabouts, calico or host-local")
	cmd.Flags().StringVar(&s.node, "node", "", "for host-local: `NAME` of this node (default: $NODE_NAME)")
	cmd.Flags().StringVar(&s.calicoConfig, "calico-config", "",
		"for calico: calicoctl's configuration `FILE`, if Calico's objects are in an etcd and not in Kubernetes")
	cmd.Flags().StringVar(&s.calicoPolicies, "calico-policies", "",
		"with --calico-config: write the policies in the etcd, and what they use, to `FILE`, as manifests for kubectl apply")
	cmd.Flags().StringVar(&s.dir, "dir", "/var/lib/cni/networks", "for host-local: `DIR` of its networks")
}

func (s *importSource) check() error {
	if s.from != "whereabouts" && s.from != "calico" && s.from != "host-local" {
		return ui.UsageError(model.NotOneOf("--from", s.from, "whereabouts", "calico", "host-local"))
	}
	if s.calicoConfig != "" && s.from != "calico" {
		return ui.Misusef("add --from calico, or leave it out", "--calico-config %q: --from is %s", s.calicoConfig, s.from)
	}
	if s.calicoPolicies != "" && s.calicoConfig == "" {
		return ui.Misusef("add --calico-config, or leave it out: policies in Kubernetes stay where they are",
			"--calico-policies %q: --calico-config is missing", s.calicoPolicies)
	}
	if s.node == "" {
		s.node = s.env.Getenv("NODE_NAME")
	}
	if s.from == "host-local" && s.node == "" {
		return ui.Misusef("add --node node1, with this node's name: the files of host-local are those of one node", "--node is missing")
	}
	return nil
}

func (s *importSource) plan(ctx context.Context, objects store.Objects) (planned, error) {
	switch s.from {
	case "calico":
		if s.calicoConfig != "" {
			return planCalicoEtcd(ctx, objects, s.calicoConfig, s.calicoPolicies)
		}
		return controller.PlanCalico(ctx, objects, rand.Reader)
	case "host-local":
		allocations, err := hostLocalAllocations(s.dir)
		if err != nil {
			return nil, err
		}
		return controller.PlanHostLocal(ctx, objects, rand.Reader, s.node, allocations)
	}
	return audit.PlanImport(ctx, objects, os.ReadFile)
}

// hostLocalAllocations reads host-local's files: the name of each is an address, and the content the container ID and
// the interface.
func hostLocalAllocations(dir string) ([]controller.HostLocalAllocation, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var out []controller.HostLocalAllocation
	for _, path := range files {
		a, err := netip.ParseAddr(filepath.Base(path))
		if err != nil {
			continue // the lock and last_reserved_ip files
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // released meanwhile
		}
		if err != nil {
			return nil, model.Errorf(model.CodeIO, "run it as root", "host-local's file: %w", err)
		}
		lines := strings.Fields(string(b))
		one := controller.HostLocalAllocation{Network: filepath.Base(filepath.Dir(path)), Addr: a.Unmap()}
		if len(lines) > 0 {
			one.ContainerID = lines[0]
		}
		if len(lines) > 1 {
			one.IfName = lines[1]
		}
		out = append(out, one)
	}
	return out, nil
}

func printImport(w io.Writer, plan planned, dryRun bool) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	added, existing := 0, 0
	var skipped, warnings []string
	written := ""
	if e, is := plan.(etcdImport); is {
		plan = e.Import
		if e.file != "" {
			did := "written to"
			if dryRun {
				did = "to write to"
			}
			written = fmt.Sprintf("%s %s %s: kubectl apply -f %[3]s\n", plural.Count(len(e.policies), "policy object",
				"policy objects"), did, e.file)
		}
	}
	pool := func(name string, regions []model.AddressRegion, reserved []model.ReservedAddress, had int) {
		for _, r := range regions {
			fmt.Fprintf(table, "%s\t%s\tregion in blocks of /%d\n", name, r.CIDR, r.BlockSize)
		}
		for _, r := range reserved {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, r.Addr, dash(r.Owner), dash(r.IfName))
		}
		added, existing = added+len(reserved), existing+had
	}
	switch plan := plan.(type) {
	case audit.Import:
		for _, p := range plan.Pools {
			pool(p.Pool, p.Regions, p.Reserved, p.Had)
		}
		skipped, warnings = plan.LeftOut, plan.Warnings
	case controller.Import:
		for _, p := range plan.Pools {
			pool(p.Pool, p.Regions, p.Reserved, p.Existing)
		}
		for _, b := range plan.Blocks {
			fmt.Fprintf(table, "%s\t%s\tblock of node %s\n", b.Pool, b.CIDR, b.Node)
			for _, a := range slices.SortedFunc(maps.Keys(b.Lent), netip.Addr.Compare) {
				node, _, _ := strings.Cut(b.Lent[a], "/")
				fmt.Fprintf(table, "%s\t%s\tlent to node %s\n", b.Pool, a, node)
			}
		}
		skipped, warnings = plan.Skipped, plan.Warnings
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, s := range skipped {
		fmt.Fprintf(w, "skipped: %s\n", s)
	}
	for _, s := range warnings {
		fmt.Fprintf(w, "warning: %s\n", s)
	}
	fmt.Fprint(w, written)
	did := "reserved"
	if dryRun {
		did = "to reserve (dry run)"
	}
	_, err := fmt.Fprintf(w, "%s %s, %d existing, %d skipped\n", plural.Count(added, "address", "addresses"), did, existing, len(skipped))
	return err
}
