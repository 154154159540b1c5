// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cli/doctor"
	"github.com/weft-net/weft/internal/cli/objects"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/endpoint/leftover"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adopted"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// cleaning says what is to be taken away.
type cleaning struct {
	source                  objects.Source
	from, stateDir, output  string
	dry, force, keepTunnels bool
	dropPolicies            bool
}

func newCleanCmd(env ui.Env) *cobra.Command {
	c := cleaning{source: objects.Source{Env: env}}
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Take away what another network has left on this node's kernel, when weft serves in its place",
		Long: "Takes away what Calico has left on this node: rules of iptables and nft, ipsets, routes to other nodes and tunnels. Interfaces of\n" +
			"running pods and the routes to them stay. Before anything is changed it is looked whether weft serves in Calico's place: what\n" +
			"Calico has given is imported, the agent has its own ways to all other nodes, and policies hold for each pod that Calico has attached. Calico's own policies\n" +
			"(NetworkPolicy and GlobalNetworkPolicy of projectcalico.org, and what belongs to them) are not enforced by weft: where there are\n" +
			"some, nothing is changed without --drop-calico-policies.\n\n" +
			"Other nodes may still send through Calico's tunnels: run it with --keep-tunnels on every node first, then without on every node.\n\n" +
			"Keys of -o json: found [text], lookAt [text], done.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), env.Stdout) },
	}
	c.source.Flags(cmd, &c.output)
	f := cmd.Flags()
	f.StringVar(&c.from, "from", "calico", "`WHOM`: calico")
	f.StringVar(&c.stateDir, "state-dir", "", "`DIR` of this node's agent (default: what its configuration says)")
	f.BoolVar(&c.dry, "dry-run", false, "only say what there is")
	f.BoolVar(&c.keepTunnels, "keep-tunnels", false, "leave the tunnels: other nodes still send through them")
	f.BoolVar(&c.dropPolicies, "drop-calico-policies", false,
		"go on though Calico's own policies are not enforced any more")
	f.BoolVar(&c.force, "force", false,
		"do not look whether weft serves in its place: pods may lose their ways, or be open")
	return cmd
}

func (c *cleaning) run(ctx context.Context, out io.Writer) error {
	if c.output != "text" && c.output != "json" {
		return ui.UsageError(fmt.Errorf("output %q is neither text nor json", c.output))
	}
	if c.from != "calico" {
		return ui.UsageError(fmt.Errorf("--from %q is not calico", c.from))
	}
	node, err := doctor.This(ctx, c.source.Config, "")
	if err != nil {
		return err
	}
	c.stateDir = cmp.Or(c.stateDir, node.Config.StateDir)
	host, err := kernel.Dial(nil)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()
	host.Root = node.NodeRoot // its iptables
	if !c.dry && !c.force {
		if err := c.serves(ctx, host); err != nil {
			return err
		}
	}
	found, err := leftover.FindCalico(ctx, host)
	if err != nil {
		return err
	}
	if c.keepTunnels {
		found.Tunnels = nil
	}
	if !c.dry {
		if err := found.Take(ctx, host); err != nil {
			return err
		}
	}
	return c.print(out, found)
}

func (c *cleaning) print(out io.Writer, found leftover.Calico) error {
	lines := found.Lines()
	if c.output == "json" {
		some := func(s []string) []string { return append([]string{}, s...) }
		return ui.PrintJSON(out, map[string]any{"found": some(lines), "lookAt": some(found.Unseen), "done": !c.dry})
	}
	did := "taken away"
	if c.dry {
		did = "to take away (nothing was changed)"
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	for _, l := range found.Unseen {
		fmt.Fprintf(&b, "look at: %s of the older iptables is there, and no iptables-legacy-save to see what is in it\n", l)
	}
	fmt.Fprintf(&b, "%d things %s\n", len(lines), did)
	_, err := io.WriteString(out, b.String())
	return err
}

// serves tells what is missing for weft to serve in Calico's place on this node.
func (c *cleaning) serves(ctx context.Context, host *kernel.Conn) error {
	objects, err := c.source.Open()
	if err != nil {
		return err
	}
	if err := c.policies(ctx, objects); err != nil {
		return err
	}
	plan, err := controller.PlanCalico(ctx, objects, rand.Reader)
	if err != nil {
		return err
	}
	news := len(plan.Blocks)
	for _, p := range plan.Pools {
		news += len(p.Reserved)
	}
	if news > 0 {
		return notYet("run `weft ipam import --from calico`", "%d addresses and blocks of Calico's are not imported", news)
	}
	status, err := reconcile.ReadStatus(c.stateDir)
	if err != nil {
		return err
	}
	broken := slices.ContainsFunc(status.Fragments, func(f reconcile.FragmentStatus) bool { return !f.OK })
	if status.Error != "" || broken || len(status.Topology.Problems) > 0 {
		return notYet("look at `weft mesh`", "this node's ways to other nodes are not all there")
	}
	return c.guarded(ctx, host)
}

// policies refuses while there are policies that only Calico enforces.
func (c *cleaning) policies(ctx context.Context, objects store.Objects) error {
	if c.dropPolicies {
		return nil
	}
	policies, err := calico.Policies(ctx, objects)
	if err != nil {
		return err
	}
	if len(policies) > 0 {
		return notYet(
			"rewrite them as NetworkPolicy or ClusterNetworkPolicy and delete them, or go on without them by --drop-calico-policies",
			"weft does not enforce Calico's own policies: %s", calico.Naming(policies))
	}
	return nil
}

// guarded reports whether each pod of this node is one that policies hold for.
func (c *cleaning) guarded(ctx context.Context, host *kernel.Conn) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	var names []string
	for _, l := range links {
		if strings.HasPrefix(l.Name, plugin.CalicoPrefix) {
			names = append(names, l.Name)
		}
	}
	inherited, err := adopted.Names(c.stateDir)
	if err != nil {
		return err
	}
	seen, err := host.ReadMarked(ctx, kernel.Marks{Alias: "-", Links: names})
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range seen.Links {
		if !strings.HasPrefix(l.Alias, "weft") && !slices.Contains(inherited, l.Name) {
			errs = append(
				errs,
				notYet("look at the agent's log, and at `weft ipam import --from calico`",
					"policies do not hold for the pod behind %s", l.Name),
			)
		}
	}
	return errors.Join(errs...)
}

func notYet(hint, format string, args ...any) error {
	return model.Faultf(model.CodeTryAgain, hint+"; nothing was changed", format, args...)
}
