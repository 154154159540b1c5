// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/objects"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plural"
)

func newIPAMReserveCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output *printer.Format
	var name, purpose string
	cmd := &cobra.Command{
		Use:   "reserve ADDRESS|PREFIX...",
		Short: "Reserve addresses of pools, so that they are not allocated",
		Long: "Creates an AddressReservation and excludes its addresses in each pool that has some of them, before it returns. Pods that\n" +
			"use some of the addresses keep them; they are listed.",
		Example: "  weft ipam reserve 10.244.9.0/24 --for printers\n" +
			"  weft ipam reserve 10.244.8.7 10.244.8.8 --name routers",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ranges, objects, err := from.ranges(output, args)
			if err != nil {
				return err
			}
			if name == "" {
				name = "reserved-" + strings.NewReplacer(".", "-", ":", "-", "/",
					"-").Replace(netip.PrefixFrom(ranges[0].Addr(), ranges[0].Bits()).String())
			}
			if err := model.CheckName("--name", name); err != nil {
				return ui.UsageError(err)
			}
			change, err := controller.Reserve(cmd.Context(), objects, name, purpose, ranges, time.Now())
			if err != nil {
				return err
			}
			return printChange(env.Stdout, output, "reserved", change)
		},
	}
	from.Flags(cmd, &output)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the AddressReservation (default: derived from the first address)")
	cmd.Flags().StringVar(&purpose, "for", "", "`PURPOSE` of the reservation, in your own words")
	return cmd
}

func newIPAMReleaseCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output *printer.Format
	var by, vm string
	cmd := &cobra.Command{
		Use:   "release [ADDRESS|PREFIX...]",
		Short: "Release reservations",
		Long: "Removes addresses from AddressReservations, and reservations that `weft ipam import` has made in the pools. An address\n" +
			"that a pod uses is not released: delete the pod, and its node releases it. With `--machine` it releases the addresses\n" +
			"that a VM keeps, as soon as none of its pods uses them; those of a VM whose object is deleted are released anyway.",
		Example: "  weft ipam release 10.244.9.0/24\n" +
			"  weft ipam release --by calico\n" +
			"  weft ipam release --machine shop/db", // glossary: the flag's name
		RunE: func(cmd *cobra.Command, args []string) error {
			if vm != "" && by == "" && len(args) == 0 {
				return from.releaseVM(cmd, output, vm)
			}
			if vm != "" || (by == "") == (len(args) == 0) {
				const hint = "name addresses, or add one of --by and --machine"                         // glossary: the flag's name
				const misused = "argument ADDRESS|PREFIX is missing, or does not fit --by or --machine" // glossary: the flag
				return ui.Misusef(hint, misused)
			}
			ranges, objects, err := from.ranges(output, args)
			if err != nil {
				return err
			}
			if by != "" {
				if ranges, err = controller.ReservedBy(cmd.Context(), objects, by); err != nil {
					return err
				}
			}
			change, err := controller.Release(cmd.Context(), objects, ranges, time.Now())
			if err != nil {
				return err
			}
			return printChange(env.Stdout, output, "released", change)
		},
	}
	from.Flags(cmd, &output)
	cmd.Flags().StringVar(&vm, "machine", "", "release the addresses that the VM `NAMESPACE/NAME` keeps")
	cmd.Flags().StringVar(&by, "by", "",
		"release the reservations of an import from `IPAM` (calico, host-local, whereabouts) that no pod uses")
	return cmd
}

// releaseVM releases the addresses that a VM keeps.
func (f *ipamSource) releaseVM(cmd *cobra.Command, output *printer.Format, vm string) error {
	_, objects, err := f.ranges(output, nil)
	if err != nil {
		return err
	}
	done, err := audit.ReleaseVM(cmd.Context(), objects, vm)
	if err != nil {
		return err
	}
	return printChange(f.Env.Stdout, output, "released", controller.Change{
		Done: done, Pools: []string{}, Held: []string{},
	})
}

// ranges parses addresses and prefixes, and opens the datastore.
func (f *ipamSource) ranges(output *printer.Format, args []string) ([]netip.Prefix, store.Objects, error) {
	var out []netip.Prefix
	for _, text := range args {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, nil, ui.Misusef("for example 10.42.0.7 or 10.42.0.0/24",
				"argument %q is not an address or a prefix", text)
		}
		if p != p.Masked() {
			return nil, nil, ui.Misusef("write "+p.Masked().String(), "argument %q has bits set behind the prefix length", text)
		}
		out = append(out, p)
	}
	objects, err := f.Open()
	return out, objects, err
}

func printChange(w io.Writer, output *printer.Format, did string, c controller.Change) error {
	if output.Document() {
		return output.Print(w, c)
	}
	for _, line := range c.Done {
		fmt.Fprintf(w, "%s: %s\n", did, line)
	}
	for _, line := range c.Held {
		fmt.Fprintf(w, "in use until the pod is deleted: %s\n", line)
	}
	if len(c.Done) == 0 {
		fmt.Fprintf(w, "nothing %s\n", did)
	}
	return nil
}

func newIPAMMigrateCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output *printer.Format
	var to string
	var dryRun, remove bool
	cmd := &cobra.Command{
		Use:   "migrate POOL --to POOL",
		Short: "Migrate pods from one pool to another",
		Long: "Disables the first pool and lists the pods that still use its addresses: when they are re-created, they get addresses of\n" +
			"the other pool. Run it again to follow the progress. With --delete it deletes the first pool when it is empty. The exit\n" +
			"code is 1 while something is left.",
		Example: "  weft ipam migrate old --to new\n" +
			"  weft ipam migrate old --to new --delete",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			objects, err := from.Open()
			if err != nil {
				return err
			}
			m, err := controller.Migrate(cmd.Context(), objects, args[0], to, dryRun, remove, time.Now())
			if err != nil {
				return err
			}
			if output.Document() {
				err = output.Print(env.Stdout, m)
			} else {
				err = printMigration(env.Stdout, m)
			}
			if err == nil && !m.Done() {
				err = fmt.Errorf("%s are left in pool %q", leftText(m), m.From)
			}
			return err
		},
	}
	from.Flags(cmd, &output)
	cmd.Flags().StringVar(&to, "to", "", "`POOL` from which the pods get new addresses")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list what is left")
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the first pool when it is empty")
	_ = cmd.MarkFlagRequired("to")
	cmd.ValidArgsFunction = complete.Args(from.pools)
	complete.Flag(cmd, "to", from.pools)
	return cmd
}

func printMigration(w io.Writer, m controller.Migration) error {
	if m.Disabled {
		fmt.Fprintf(w, "pool %s is disabled\n", m.From)
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if len(m.Pods) > 0 {
		fmt.Fprintln(table, "POD\tNODE\tADDRESS")
	}
	for _, p := range m.Pods {
		fmt.Fprintf(table, "%s\t%s\t%s\n", p.Pod, dash(p.Node), p.Addr)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if m.Deleted {
		_, err := fmt.Fprintf(w, "pool %s deleted\n", m.From)
		return err
	}
	_, err := fmt.Fprintf(w, "%s are left\n", leftText(m))
	return err
}

// leftText counts what a migration has left in the pool.
func leftText(m controller.Migration) string {
	return fmt.Sprintf("%s, %s and %s", plural.Count(len(m.Pods), "pod", "pods"), plural.Count(m.Blocks, "block", "blocks"),
		plural.Count(m.Reserved, "reservation", "reservations"))
}

// find prints what the datastore has about an address.
func (f *ipamSource) find(ctx context.Context, w io.Writer, text string, output *printer.Format) error {
	ranges, objects, err := f.ranges(output, []string{text})
	if err != nil {
		return err
	}
	if !ranges[0].IsSingleIP() {
		return ui.Misusef("for example 10.42.0.7", "argument %q is not an address", text)
	}
	found, err := controller.FindAddress(ctx, objects, ranges[0].Addr())
	if err != nil {
		return err
	}
	if output.Document() {
		return output.Print(w, found)
	}
	for _, line := range found.Lines {
		fmt.Fprintln(w, line)
	}
	return nil
}
