// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/objects"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

func newIPAMReserveCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output, name, what string
	cmd := &cobra.Command{
		Use:   "reserve ADDRESS|PREFIX...",
		Short: "Keep addresses of pools from being given to pods",
		Long: "Makes an AddressReservation, and has it in force in every pool that has some of the addresses before it returns. Pods that\n" +
			"have some of them already keep these; they are listed.",
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
			change, err := controller.Reserve(cmd.Context(), objects, name, what, ranges, time.Now())
			if err != nil {
				return err
			}
			return printChange(env.Stdout, output, "reserved", change)
		},
	}
	from.Flags(cmd, &output)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the AddressReservation (default: made of the first address)")
	cmd.Flags().StringVar(&what, "for", "", "`WORDS` that say what the addresses are for")
	return cmd
}

func newIPAMReleaseCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output, by, machine string
	cmd := &cobra.Command{
		Use:   "release [ADDRESS|PREFIX...]",
		Short: "Take reservations back",
		Long: "Takes addresses out of AddressReservations, and out of what `weft ipam import` has reserved in the pools. An address that a pod\n" +
			"has is not released: delete the pod, and its node frees it. With --machine what is promised to a virtual machine is free as soon as\n" +
			"none of its pods has it; that of a machine whose object is deleted is so by itself.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if machine != "" && by == "" && len(args) == 0 {
				return from.releaseMachine(cmd, output, machine)
			}
			if machine != "" || (by == "") == (len(args) == 0) {
				return ui.UsageError(errors.New("say which addresses, or --by whom they were reserved"))
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
	cmd.Flags().StringVar(&machine, "machine", "", "what is promised to the virtual machine `NAMESPACE/NAME`")
	cmd.Flags().StringVar(&by, "by", "",
		"all that an import from `WHOM` (calico, host-local, whereabouts) reserved and no pod has")
	return cmd
}

// releaseMachine takes back what is promised to a virtual machine.
func (f *ipamSource) releaseMachine(cmd *cobra.Command, output, machine string) error {
	_, objects, err := f.ranges(output, nil)
	if err != nil {
		return err
	}
	done, err := audit.ReleaseMachine(cmd.Context(), objects, machine)
	if err != nil {
		return err
	}
	return printChange(f.Env.Stdout, output, "released", controller.Change{
		Done: done, Pools: []string{}, Held: []string{},
	})
}

// ranges reads addresses and prefixes, and opens the place of the cluster's objects.
func (f *ipamSource) ranges(output string, args []string) ([]netip.Prefix, store.Objects, error) {
	if output != "text" && output != "json" {
		return nil, nil, ui.UsageError(fmt.Errorf("output %q is neither text nor json", output))
	}
	var out []netip.Prefix
	for _, text := range args {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, nil, ui.UsageError(fmt.Errorf("%q is neither an address nor a prefix", text))
		}
		if p != p.Masked() {
			return nil, nil, ui.UsageError(fmt.Errorf("%q has bits set behind the prefix length: write %s", text, p.Masked()))
		}
		out = append(out, p)
	}
	objects, err := f.Open()
	return out, objects, err
}

func printChange(w io.Writer, output, did string, c controller.Change) error {
	if output == "json" {
		return ui.PrintJSON(w, c)
	}
	for _, line := range c.Done {
		fmt.Fprintf(w, "%s: %s\n", did, line)
	}
	for _, line := range c.Held {
		fmt.Fprintf(w, "kept until it goes: %s\n", line)
	}
	if len(c.Done) == 0 {
		fmt.Fprintf(w, "nothing was to be %s\n", did)
	}
	return nil
}

func newIPAMMigrateCmd(env Env) *cobra.Command {
	from := ipamSource{objects.Source{Env: env}}
	var output, to string
	var dry, remove bool
	cmd := &cobra.Command{
		Use:   "migrate POOL --to POOL",
		Short: "Move the pods of one pool to another",
		Long: "Disables the first pool, and lists the pods that still have addresses of it: made anew, they get some of the other one. Run it\n" +
			"again to see how far that is; with --delete the first pool goes when nothing is left. Exits with 1 while something is left.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return ui.UsageError(fmt.Errorf("output %q is neither text nor json", output))
			}
			objects, err := from.Open()
			if err != nil {
				return err
			}
			m, err := controller.Migrate(cmd.Context(), objects, args[0], to, dry, remove, time.Now())
			if err != nil {
				return err
			}
			if output == "json" {
				err = ui.PrintJSON(env.Stdout, m)
			} else {
				err = printMigration(env.Stdout, m)
			}
			if err == nil && !m.Done() {
				err = fmt.Errorf("%d pods, %d blocks and %d reservations are left in pool %q", len(m.Pods), m.Blocks,
					m.Reserved, m.From)
			}
			return err
		},
	}
	from.Flags(cmd, &output)
	cmd.Flags().StringVar(&to, "to", "", "`POOL` whose addresses the pods get")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what is left")
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the first pool when nothing is left")
	_ = cmd.MarkFlagRequired("to")
	return cmd
}

func printMigration(w io.Writer, m controller.Migration) error {
	if m.Disabled {
		fmt.Fprintf(w, "pool %s gives no further addresses\n", m.From)
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
		_, err := fmt.Fprintf(w, "pool %s is deleted\n", m.From)
		return err
	}
	_, err := fmt.Fprintf(w, "%d pods, %d blocks and %d reservations are left\n", len(m.Pods), m.Blocks, m.Reserved)
	return err
}

// find prints all that is known of an address.
func (f *ipamSource) find(ctx context.Context, w io.Writer, text, output string) error {
	ranges, objects, err := f.ranges(output, []string{text})
	if err != nil {
		return err
	}
	if !ranges[0].IsSingleIP() {
		return ui.UsageError(fmt.Errorf("%q is no address", text))
	}
	found, err := controller.Find(ctx, objects, ranges[0].Addr())
	if err != nil {
		return err
	}
	if output == "json" {
		return ui.PrintJSON(w, found)
	}
	for _, line := range found.Lines {
		fmt.Fprintln(w, line)
	}
	return nil
}
