// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/objects"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plural"
)

func newIPAMCmd(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "Show, check and edit the cluster's address pools",
		Long: `Shows the AddressPools of the cluster and which pods use their addresses, finds leaks, reserves addresses, moves pods from one
pool to another, and imports the allocations of other IPAMs. The datastore is that of the agents: an API server, etcd or
a directory of manifests.`,
		Example: "  weft ipam show\n  weft ipam check --store-dir /run/weft/lab/store\n  weft ipam reserve 10.244.9.0/24 --for printers",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(newIPAMShowCmd(env), newIPAMCheckCmd(env), newIPAMReserveCmd(env), newIPAMReleaseCmd(env),
		newIPAMMigrateCmd(env), newIPAMImportCmd(env))
	return cmd
}

func newIPAMShowCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output *printer.Format
	var watch *printer.Watch
	var agent string
	cmd := &cobra.Command{
		Use:   "show [ADDRESS]",
		Short: "Show pools, blocks and their use, or one address",
		Long: "Shows pools, blocks and, without pools, the nodes' ranges, each with the number of addresses that are allocatable, in use\n" +
			"and free. Addresses of pods, claims and reservations are in use; with --agent, on a node as root, also those that its\n" +
			"agent has allocated. With an address: its pool, block, reservation, and the pod that uses it.",
		Example: "  weft ipam show --store-dir /run/weft/lab/store\n" +
			"  weft ipam show --watch\n" +
			"  weft ipam show 10.244.9.7",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && watch.On() {
				return ui.Misusef("leave out the address", "--watch does not show one address")
			}
			if len(args) > 0 {
				return from.find(cmd.Context(), env.Stdout, args[0], output)
			}
			objects, err := from.Open()
			if err != nil {
				return err
			}
			return watch.Show(cmd.Context(), env.Stdout, env.Stderr, func(ctx context.Context) (printer.Result, error) {
				report, err := audit.Inspect(ctx, objects)
				if err != nil {
					return printer.Result{}, err
				}
				usage := report.Usage()
				if agent != "" {
					local, err := nodeState(ctx, agent)
					if err != nil {
						return printer.Result{}, err
					}
					usage = report.Usage(local)
				}
				return poolsResult(report, usage), nil
			})
		},
	}
	from.DatastoreFlags(cmd)
	from.LabFlag(cmd)
	output = printer.Objects(cmd.Flags(), false)
	watch = output.Watch(cmd.Flags())
	ipamAgentFlag(cmd, &agent, "count the addresses that it has allocated, too")
	return cmd
}

func newIPAMCheckCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output *printer.Format
	var agent string
	var fix bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find leaked blocks and addresses",
		Long: "Compares pools and blocks with the cluster's nodes and pods. Findings are blocks that overlap, that have no pool or whose\n" +
			"node is deleted, addresses that are reserved for deleted pods, and pods that share an address or use one of another\n" +
			"node's block. With --agent, on a node as root, it also compares the agent's allocations with its ledger and with the\n" +
			"addresses in the kernel. With --fix it releases what is certainly leaked, with --agent also addresses that host-local\n" +
			"has reserved for attachments that do not exist. The exit code is 1 if findings are left.",
		Example: "  weft ipam check --agent\n" +
			"  weft ipam check --store-dir /run/weft/lab/store --fix",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, objects, err := from.inspect(cmd, output)
			if err != nil {
				return err
			}
			if agent != "" {
				read := nodeState
				if fix {
					read = leaksOf
				}
				local, err := read(cmd.Context(), agent)
				if err != nil {
					return err
				}
				report.Compare(local)
			}
			left, fixed := len(report.Findings), 0
			if fix {
				if fixed, err = report.Fix(cmd.Context(), objects); err != nil {
					return err
				}
				left -= fixed
			}
			if output.Document() {
				err = output.Print(env.Stdout, report.Findings)
			} else {
				err = printAudit(env.Stdout, report, fix)
			}
			if err == nil && left > 0 {
				err = fmt.Errorf("%s left", plural.Count(left, "finding is", "findings are"))
			}
			return err
		},
	}
	from.Flags(cmd, &output)
	cmd.Flags().BoolVar(&fix, "fix", false, "release what is certainly leaked")
	ipamAgentFlag(cmd, &agent, "compare its allocations, its ledger and the kernel, too")
	return cmd
}

func ipamAgentFlag(cmd *cobra.Command, into *string, what string) {
	cmd.Flags().StringVar(into, "agent", "", "`URL` of this node's agent: "+what+" (without a value: "+agentURL+")")
	cmd.Flags().Lookup("agent").NoOptDefVal = agentURL
}

// ipamSource is the datastore that the commands of weft ipam read and write.
type ipamSource struct{ objects.Source }

// pools lists the names of the pools, for completion.
func (f *ipamSource) pools(ctx context.Context) ([]string, error) {
	objects, err := f.Open()
	if err != nil {
		return nil, err
	}
	all, err := objects.List(ctx, store.AddressPools())
	var out []string
	for _, o := range all {
		out = append(out, o.Key.Name)
	}
	return out, err
}

func (f *ipamSource) inspect(cmd *cobra.Command, output *printer.Format) (audit.Report, store.Objects, error) {
	var none audit.Report
	objects, err := f.Open()
	if err != nil {
		return none, nil, err
	}
	report, err := audit.Inspect(cmd.Context(), objects)
	return report, objects, err
}

// poolsResult has tables of pools, blocks, the nodes' ranges and VMs with addresses of their own. The names of -o name
// are the pools'.
func poolsResult(p audit.Report, u audit.Usages) printer.Result {
	tables := []printer.Table{poolTable(p, u)}
	if len(p.Pools) == 0 && len(u.Ranges) > 0 {
		tables = nil
	}
	blocks := printer.Table{Header: []string{"BLOCK", "POOL", "NODE", "TOTAL", "USED", "FREE", "LENT", "REQUESTED"}}
	for i, b := range p.Blocks {
		total, used, free := counts(u.Blocks[i], u.Known)
		blocks.Row("", b.CIDR.String(), b.Pool, b.Node, total, used, free, addrs(b.Lent), addrs(b.Requested))
	}
	ranges := printer.Table{Header: []string{"NODE", "RANGE", "TOTAL", "USED", "FREE"}, Keys: 2}
	for _, r := range u.Ranges {
		total, used, free := counts(r, u.Known)
		ranges.Row("", r.Node, fmt.Sprint(r.CIDR), total, used, free)
	}
	vms := printer.Table{Header: []string{"VM", "NETWORK", "INTERFACE", "ADDRESSES", "NODE"}, Keys: 3}
	for _, m := range p.VMs {
		var words []string
		for _, a := range m.Addrs {
			words = append(words, a.String())
		}
		vms.Row("", m.VM, m.Network, m.Interface, strings.Join(words, ", "), m.Node)
	}
	out := printer.Result{
		Document: struct {
			audit.Report
			Usage audit.Usages `json:"usage"`
		}{p, u},
		Tables: append(tables, blocks, ranges, vms),
	}
	if !u.Known {
		out.Lines = []printer.Line{{
			Text: "\nNo pod reports its addresses. To count the addresses that a node has allocated, add --agent there, as root.",
		}}
	}
	return out
}

// poolTable returns pools as a table.
func poolTable(p audit.Report, u audit.Usages) printer.Table {
	t := printer.Table{Header: []string{
		"POOL", "REGIONS", "MODE", "ENCAPSULATION", "BLOCKS", "RESERVED", "TOTAL", "USED", "FREE", "ALLOCATABLE", "EXHAUSTED ON",
	}}
	conditions := model.PoolConditions(p.Pools)
	for i, pool := range p.Pools {
		var regions []string
		for _, r := range pool.Regions {
			regions = append(regions, fmt.Sprintf("%s in /%d", r.CIDR, r.BlockSize))
		}
		n := 0
		for _, b := range p.Blocks {
			if b.Pool == pool.Name {
				n++
			}
		}
		allocatable := "yes"
		if c := conditions[pool.Name]; !c.True {
			allocatable = c.Reason
		}
		total, used, free := counts(u.Pools[i], u.Known)
		t.Row(pool.Name, pool.Name, strings.Join(regions, ", "), string(pool.AssignmentMode), encapsulation(pool.Encapsulation),
			strconv.Itoa(n), strconv.Itoa(len(pool.Reserved)+len(pool.Excluded)), total, used, free, allocatable,
			strings.Join(pool.ExhaustedOn, ", "))
	}
	return t
}

// counts returns the cells TOTAL, USED and FREE.
func counts(u audit.Usage, known bool) (total, used, free string) {
	if !known {
		return number(u.Total), "", ""
	}
	return number(u.Total), fmt.Sprint(u.Used), number(u.Free)
}

// number formats a number of addresses; a very large one as a power of two.
func number(n *big.Int) string {
	const exact = 32
	if n.BitLen() <= exact {
		return n.String()
	}
	return fmt.Sprintf("2^%d", new(big.Int).Sub(n, big.NewInt(1)).BitLen())
}

// encapsulation formats a pool's encapsulation and its mode.
func encapsulation(e model.Encapsulation) string {
	switch {
	case e.None():
		return dash(string(e.Kind))
	case e.Mode == "":
		return string(e.Kind) + " " + string(model.EncapsulateAlways)
	}
	return string(e.Kind) + " " + string(e.Mode)
}

// addrs formats addresses, each with the node that borrows or requests it.
func addrs(m map[netip.Addr]string) string {
	var keys []netip.Addr
	for a := range m {
		keys = append(keys, a)
	}
	slices.SortFunc(keys, netip.Addr.Compare)
	var words []string
	for _, a := range keys {
		node, _, _ := strings.Cut(m[a], "/")
		words = append(words, a.String()+" "+dash(node))
	}
	return dash(strings.Join(words, ", "))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func printAudit(w io.Writer, p audit.Report, fixed bool) error {
	for _, f := range p.Findings {
		what := ""
		switch {
		case f.Fix != "" && fixed:
			what = " (fixed: " + f.Fix + ")"
		case f.Fix != "":
			what = " (--fix: " + f.Fix + ")"
		}
		fmt.Fprintf(w, "%s: %s%s\n", f.Object, f.Msg, what)
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s\n", plural.Count(len(p.Pools), "pool", "pools"),
		plural.Count(len(p.Blocks), "block", "blocks"), plural.Count(len(p.Findings), "finding", "findings"))
	return err
}
