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
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/endpoint/cleanup"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adopted"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/plural"
)

// cleaning has the flags of the command.
type cleaning struct {
	source                     objects.Source
	from, stateDir             string
	output                     *printer.Format
	dryRun, force, keepTunnels bool
	dropPolicies               bool
	// root and wait are for the removal of weft itself.
	root, confDir, binDir string
	wait, hold            bool
}

func newCleanCmd(env ui.Env) *cobra.Command {
	c := cleaning{source: objects.Source{Env: env}}
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove what another network, or weft itself, has left on this node",
		Long: `--from calico removes what Calico has left on this node: rules of iptables and nftables, ipsets, routes to other nodes, and tunnels.
Interfaces of running pods and the routes to them stay. It changes nothing unless weft has replaced Calico: Calico's
allocations are imported, the agent has routes to all other nodes, and policies are enforced for each pod that Calico
has attached. weft does not enforce rules and objects of Calico that it does not understand: if there are some, nothing is
changed without --drop-calico-policies.

Other nodes may still send through Calico's tunnels: run it on every node with --keep-tunnels first, then on every node
without.

--from weft removes what weft has made on this node, when its agent has ended: the runtime's configuration and weft's
programs (those that they replaced are restored), links, routes, nftables tables, changed settings, and the agent's
files. Pods that run keep their interfaces, without policies. As long as there are any, the ledger stays, and, unless
another vendor's network is configured, weft-cni and its configuration, with which the runtime stops them; run it again
when they are gone. weft cluster uninstall runs it on every node.

Keys of -o json: found [text], done; with --from calico lookAt [text]; with --from weft pods [text], kept [text].`,
		Example: "  weft clean --from calico --dry-run\n" +
			"  weft clean --from calico --keep-tunnels\n" +
			"  weft clean --from calico\n" +
			"  weft clean --from weft --dry-run",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), env.Stdout) },
	}
	c.source.Flags(cmd, &c.output)
	f := cmd.Flags()
	f.StringVar(&c.from, "from", "calico", "`NETWORK` to remove: calico or weft")
	f.StringVar(&c.stateDir, "state-dir", "", "state `DIR` of this node's agent (default: its configuration's)")
	f.BoolVar(&c.dryRun, "dry-run", false, "print what would be removed, and change nothing")
	f.BoolVar(&c.keepTunnels, "keep-tunnels", false, "keep the tunnels, through which other nodes may still send")
	f.BoolVar(&c.dropPolicies, "drop-calico-policies", false,
		"continue although some of Calico's own policies are no longer enforced")
	f.BoolVar(&c.force, "force", false,
		"do not check that weft has replaced Calico: pods may lose their routes, or their policies")
	f.StringVar(&c.root, "root", "", "for weft: `DIR` where the node's root file system is mounted, in a container (default: none)")
	f.StringVar(&c.confDir, "conf-dir", "", "for weft: `DIR` of the runtime's configurations (default: the configuration's, or /etc/cni/net.d)")
	f.StringVar(&c.binDir, "cni-bin-dir", "", "for weft: `DIR` of the runtime's plugins (default: the configuration's, or /opt/cni/bin)")
	f.BoolVar(&c.hold, "hold", false, "for weft: after --wait run until SIGTERM, as the container of a DaemonSet must")
	f.BoolVar(&c.wait, "wait", false, "for weft: repeat until the node's last pod of the network is gone")
	return cmd
}

func (c *cleaning) run(ctx context.Context, out io.Writer) error {
	switch c.from {
	case "calico":
	case "weft":
		return c.uninstall(ctx, out)
	default:
		return ui.UsageError(model.NotOneOf("--from", c.from, "calico", "weft"))
	}
	node, err := doctor.Local(ctx, c.source.Config, "")
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
	if !c.dryRun && !c.force {
		if err := c.serves(ctx, host); err != nil {
			return err
		}
	}
	found, err := cleanup.FindCalico(ctx, host)
	if err != nil {
		return err
	}
	if c.keepTunnels {
		found.Tunnels = nil
	}
	if !c.dryRun {
		if err := found.Remove(ctx, host); err != nil {
			return err
		}
	}
	return c.print(out, found)
}

func (c *cleaning) print(out io.Writer, found cleanup.Calico) error {
	lines := found.Lines()
	if c.output.Document() {
		some := func(s []string) []string { return append([]string{}, s...) }
		return c.output.Print(out, map[string]any{"found": some(lines), "lookAt": some(found.Unreadable), "done": !c.dryRun})
	}
	did := "removed"
	if c.dryRun {
		did = "to remove (dry run)"
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	for _, l := range found.Unreadable {
		fmt.Fprintf(&b, "not inspected: %s of legacy iptables: iptables-legacy-save is not installed\n", l)
	}
	fmt.Fprintf(&b, "%s %s\n", plural.Count(len(lines), "object", "objects"), did)
	_, err := io.WriteString(out, b.String())
	return err
}

// serves returns what is missing before weft can replace Calico on this node.
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
	missing := len(plan.Blocks)
	for _, p := range plan.Pools {
		missing += len(p.Reserved)
	}
	if missing > 0 {
		return notYet("run `weft ipam import --from calico`", "%d addresses and blocks of Calico are not imported", missing)
	}
	status, err := reconcile.ReadStatus(c.stateDir)
	if err != nil {
		return err
	}
	broken := slices.ContainsFunc(status.Fragments, func(f reconcile.FragmentStatus) bool { return !f.OK })
	if status.Error != "" || broken || len(status.Topology.Problems) > 0 {
		return notYet("run `weft mesh`", "the mesh of this node is incomplete: not all peers have routes")
	}
	return c.guarded(ctx, host)
}

// policies refuses to continue while there are policies that only Calico enforces.
func (c *cleaning) policies(ctx context.Context, objects store.Objects) error {
	if c.dropPolicies {
		return nil
	}
	policies, err := calico.Unenforced(ctx, objects)
	if err != nil {
		return err
	}
	if len(policies) > 0 {
		return notYet(
			"rewrite them, or delete them, or add --drop-calico-policies",
			"weft does not enforce these objects of Calico, or only in part: %s", calico.Summary(policies))
	}
	return nil
}

// guarded returns an error unless policies are enforced for each pod of this node.
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
				notYet("see the agent's log, and run `weft ipam import --from calico`",
					"policies are not enforced for the pod behind %s", l.Name),
			)
		}
	}
	return errors.Join(errs...)
}

func notYet(hint, format string, args ...any) error {
	return model.Errorf(model.CodeTryAgain, hint+"; nothing was changed", format, args...)
}
