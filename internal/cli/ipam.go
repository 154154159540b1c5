// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/objects"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

func newIPAMCmd(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "ipam", Short: "Show, check and fill the cluster's pools of addresses", Args: cobra.NoArgs}
	cmd.AddCommand(newIPAMShowCmd(env), newIPAMCheckCmd(env), newIPAMReserveCmd(env), newIPAMReleaseCmd(env),
		newIPAMMigrateCmd(env), newIPAMImportCmd(env))
	return cmd
}

func newIPAMShowCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output, agent string
	cmd := &cobra.Command{
		Use:   "show [ADDRESS]",
		Short: "Show pools of addresses, which node has which block and how much is in use, or all that is known of one address",
		Long: "Shows pools, blocks, and where there are no pools the nodes' own ranges, each with how many addresses can be given, are in use, and are\n" +
			"free. In use is what pods, claims and reservations say. With --agent, on a node as root, also what its agent has given.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return from.find(cmd.Context(), env.Stdout, args[0], output)
			}
			picture, _, err := from.look(cmd, output)
			if err != nil {
				return err
			}
			usage := picture.Usage()
			if agent != "" {
				local, err := here(cmd.Context(), agent)
				if err != nil {
					return err
				}
				usage = picture.Usage(local)
			}
			if output == "json" {
				return ui.PrintJSON(env.Stdout, struct {
					audit.Report
					Usage audit.Usages `json:"usage"`
				}{picture, usage})
			}
			return printPools(env.Stdout, picture, usage)
		},
	}
	from.Flags(cmd, &output)
	ipamAgentFlag(cmd, &agent, "count what it has given, too")
	return cmd
}

func newIPAMCheckCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output, agent string
	var fix bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for blocks and addresses that nobody can use any more",
		Long: "Compares pools and blocks with the nodes and pods that there are: blocks that overlap or belong to no pool or to a node\n" +
			"that is gone, addresses that are reserved for pods that are gone, pods that have one address or that of another node.\n" +
			"With --agent, on a node as root, also what its agent has given with its ledger and with the addresses in the kernel.\n" +
			"With --fix it frees what can be freed without a doubt. Exits with 1 when something is left.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			picture, objects, err := from.look(cmd, output)
			if err != nil {
				return err
			}
			if agent != "" {
				local, err := here(cmd.Context(), agent)
				if err != nil {
					return err
				}
				picture.Compare(local)
			}
			left, fixed := len(picture.Findings), 0
			if fix {
				if fixed, err = picture.Fix(cmd.Context(), objects); err != nil {
					return err
				}
				left -= fixed
			}
			if output == "json" {
				err = ui.PrintJSON(env.Stdout, picture.Findings)
			} else {
				err = printLeftovers(env.Stdout, picture, fix)
			}
			if err == nil && left > 0 {
				err = fmt.Errorf("%d findings are left", left)
			}
			return err
		},
	}
	from.Flags(cmd, &output)
	cmd.Flags().BoolVar(&fix, "fix", false, "free what can be freed without a doubt")
	ipamAgentFlag(cmd, &agent, "compare its memory, its ledger and the kernel, too")
	return cmd
}

func ipamAgentFlag(cmd *cobra.Command, into *string, what string) {
	cmd.Flags().StringVar(into, "agent", "", "`URL` of this node's agent: "+what+" (alone: "+agentURL+")")
	cmd.Flags().Lookup("agent").NoOptDefVal = agentURL
}

// ipamSource is where the cluster's objects are.
type ipamSource struct{ objects.Source }

func (f *ipamSource) look(cmd *cobra.Command, output string) (audit.Report, store.Objects, error) {
	var none audit.Report
	if output != "text" && output != "json" {
		return none, nil, ui.UsageError(fmt.Errorf("output %q is neither text nor json", output))
	}
	objects, err := f.Open()
	if err != nil {
		return none, nil, err
	}
	picture, err := audit.Inspect(cmd.Context(), objects)
	return picture, objects, err
}

func printPools(w io.Writer, p audit.Report, u audit.Usages) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if len(p.Pools) > 0 || len(u.Ranges) == 0 {
		fmt.Fprintln(table, "POOL\tREGIONS\tMODE\tENCAPSULATION\tBLOCKS\tRESERVED\tTOTAL\tUSED\tFREE\tGIVES\tWANTED BY")
	}
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
		gives := "yes"
		if c := conditions[pool.Name]; !c.True {
			gives = c.Reason
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", pool.Name, dash(strings.Join(regions, ", ")),
			dash(string(pool.AssignmentMode)),
			encapsulation(pool.Encapsulation), n, len(pool.Reserved)+len(pool.Excluded), counts(u.Pools[i], u.Known), gives,
			dash(strings.Join(pool.Wanted, ", ")))
	}
	if len(p.Blocks) > 0 {
		fmt.Fprintln(table, "\nBLOCK\tPOOL\tNODE\tTOTAL\tUSED\tFREE\tCEDED\tASKED FOR")
	}
	for i, b := range p.Blocks {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", b.CIDR, b.Pool, b.Node, counts(u.Blocks[i], u.Known), addrs(b.Ceded),
			addrs(b.Asked))
	}
	if len(u.Ranges) > 0 && len(p.Pools) > 0 {
		fmt.Fprintln(table)
	}
	if len(u.Ranges) > 0 {
		fmt.Fprintln(table, "NODE\tRANGE\tTOTAL\tUSED\tFREE")
	}
	for _, r := range u.Ranges {
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Node, r.CIDR, counts(r, u.Known))
	}
	if len(p.Machines) > 0 {
		fmt.Fprintln(table, "\nMACHINE\tNETWORK\tINTERFACE\tADDRESSES\tNODE")
	}
	for _, m := range p.Machines {
		var words []string
		for _, a := range m.Addrs {
			words = append(words, a.String())
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", m.Machine, m.Network, m.Interface, dash(strings.Join(words, ", ")),
			dash(m.Node))
	}
	if err := table.Flush(); err != nil || u.Known {
		return err
	}
	_, err := fmt.Fprintln(w,
		"\nNo pod says which addresses it has. What a node has given is counted there, as root, with --agent.")
	return err
}

// counts are the columns of what can be given, is in use, and is free.
func counts(u audit.Usage, known bool) string {
	if !known {
		return number(u.Total) + "\t-\t-"
	}
	return fmt.Sprintf("%s\t%d\t%s", number(u.Total), u.Used, number(u.Free))
}

// number is a number for people: of very many addresses only how many they are, about.
func number(n *big.Int) string {
	const exact = 32
	if n.BitLen() <= exact {
		return n.String()
	}
	return fmt.Sprintf("2^%d", new(big.Int).Sub(n, big.NewInt(1)).BitLen())
}

// encapsulation is how packets travel, in a word.
func encapsulation(e model.Encapsulation) string {
	switch {
	case e.None():
		return dash(string(e.Kind))
	case e.When == "":
		return string(e.Kind) + " " + string(model.EncapsulateAlways)
	}
	return string(e.Kind) + " " + string(e.When)
}

// addrs lists addresses, each with the node that has it or asks for it.
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

func printLeftovers(w io.Writer, p audit.Report, fixed bool) error {
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
	_, err := fmt.Fprintf(w, "%d pools, %d blocks, %d findings\n", len(p.Pools), len(p.Blocks), len(p.Findings))
	return err
}
