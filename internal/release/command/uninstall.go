// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weft-net/weft/internal/cli/kube/podexec"
	"github.com/weft-net/weft/internal/cli/progress"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plural"
	"github.com/weft-net/weft/internal/release"
)

// removal has the flags of weft cluster uninstall.
type removal struct {
	*flags
	yes, keepData, abandon bool
}

func newUninstall(f *flags) *cobra.Command {
	r := removal{flags: f}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove weft from the cluster and from its nodes",
		Long: `Replaces the agents by the DaemonSet weft-clean, which removes what weft has made on each node: configuration and programs,
links, routes, tables, files and changed settings. When all nodes are clean it deletes what weft has written to Nodes and
policies, weft's kinds with their objects (--keep-data keeps them), and the release. While it waits it prints which nodes
are not clean, and why. A removal that was interrupted is continued by the same command; weft cluster install revokes it.

Pods of the network are counted by their namespaces, and the command asks; without a terminal it needs --yes. They keep
their interfaces and the routes on their node, are not repaired any more, and network policies are no longer enforced for
them; pods of other nodes are not reached. Their nodes are not clean before they are gone, and unless another network is
configured keep weft-cni and its configuration, with which the runtime stops them: then the command ends with exit code 1,
weft-clean continues, and the same command removes the rest later.`,
		Example: "  weft cluster uninstall --dry-run\n  weft cluster uninstall\n  weft cluster uninstall --yes --keep-data --context staging",
		Args:    ui.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	fs.BoolVar(&r.dryRun, "dry-run", false, "change nothing, print what would be removed from nodes and cluster")
	fs.BoolVar(&r.keepData, "keep-data", false, "keep weft's kinds and their objects: pools, blocks, claims, reservations")
	fs.BoolVar(&r.abandon, "abandon-nodes", false, "remove weft from the cluster although nodes do not answer or have pods of the network")
	fs.DurationVar(&r.timeout, "timeout", 5*time.Minute, "`DURATION` to wait for the nodes")
	return cmd
}

func (r *removal) run(ctx context.Context) error {
	if r.timeout <= 0 {
		return ui.UsageError(model.OutOfRange("--timeout", r.timeout, "more than 0s", "5m"))
	}
	c, err := r.open()
	if err != nil {
		return err
	}
	if r.dryRun {
		return r.preview(ctx, c)
	}
	if err := r.confirm(ctx, c); err != nil {
		return err
	}
	line := progress.Start(r.env.Stderr, "waiting for the API server")
	done, err := c.Uninstall(ctx, release.UninstallOptions{
		KeepData: r.keepData, AbandonNodes: r.abandon,
		Wait: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, r.timeout)
		},
		Progress: func(nodes []release.NodeState) {
			line.Logf("waiting for %s", join(nodes, func(n release.NodeState) bool { return !n.Clean() }))
		},
	})
	line.Stop()
	if err != nil {
		return err
	}
	return r.report(done)
}

func (r *removal) report(done release.Removal) error {
	var b strings.Builder
	for _, k := range done.Kept {
		fmt.Fprintf(&b, "kept: %s\n", k)
	}
	dirty := join(done.Nodes, func(n release.NodeState) bool { return !n.Clean() })
	switch {
	case !done.Complete:
		fmt.Fprintf(&b, "weft is removed but for pods of the network: %s\n", dirty)
		b.WriteString("weft-clean removes the rest from their nodes when they are gone; then run weft cluster uninstall again\n")
	case dirty != "":
		fmt.Fprintf(&b, "weft is removed from the cluster, and not from these nodes: %s\ntype there, as root:\n  %s\n", dirty,
			done.ByHand)
	default:
		fmt.Fprintf(&b, "weft is removed from the cluster and from %s\n", plural.Count(len(done.Nodes), "node", "nodes"))
	}
	if _, err := fmt.Fprint(r.env.Stdout, b.String()); err != nil {
		return err
	}
	if !done.Complete {
		return ui.Exit(ui.Bad)
	}
	return nil
}

// join returns the nodes that which selects.
func join(nodes []release.NodeState, which func(release.NodeState) bool) string {
	var parts []string
	for _, n := range nodes {
		if which(n) {
			parts = append(parts, n.String())
		}
	}
	return strings.Join(parts, "; ")
}

// confirm asks if pods of the network run, or objects are deleted.
func (r *removal) confirm(ctx context.Context, c *release.Cluster) error {
	if r.yes {
		return nil
	}
	pods, err := c.PodsOfNetwork(ctx)
	if err != nil {
		return err
	}
	objects := map[string]int{}
	if !r.keepData {
		if objects, err = c.Objects(ctx); err != nil {
			return err
		}
	}
	if len(pods) == 0 && len(objects) == 0 {
		return nil
	}
	var question []string
	if len(pods) > 0 {
		question = append(question, fmt.Sprintf("%d pods run with a network of their own (%s): nothing repairs it without weft, "+
			"their policies are not enforced any more, and pods of other nodes are not reached", total(pods), counted(pods)))
	}
	if len(objects) > 0 {
		question = append(question, fmt.Sprintf("these objects are deleted: %s (--keep-data keeps them)", counted(objects)))
	}
	fmt.Fprintf(r.env.Stderr, "weft: %s. Remove weft? [y/N] ", strings.Join(question, "; "))
	hint := "answer y, or add --yes"
	if file, is := r.env.Stdin.(*os.File); is && !term.IsTerminal(int(file.Fd())) {
		fmt.Fprintln(r.env.Stderr)
		return ui.UsageError(model.Errorf(model.CodeInvalidConf, "add --yes: the standard input is no terminal", "weft is not removed"))
	}
	answer, _ := bufio.NewReader(r.env.Stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return ui.UsageError(model.Errorf(model.CodeInvalidConf, hint, "weft is not removed"))
	}
	return nil
}

func total(of map[string]int) (sum int) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// counted is "shop 3, web 1".
func counted(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}

// preview prints what would be removed. What is on nodes their agents say, with the right to execute in their pods.
func (r *removal) preview(ctx context.Context, c *release.Cluster) error {
	p, err := c.Preview(ctx, r.keepData)
	if err != nil {
		return err
	}
	agents, _, err := podexec.Open(r.env, r.target.Kubeconfig, r.target.Context)
	if err != nil {
		return err
	}
	if agents == nil {
		return ui.UsageError(model.Errorf(model.CodeInvalidConf, "add --kubeconfig, or set $KUBECONFIG", "no cluster is named"))
	}
	list, err := agents.List(ctx)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, node := range p.Nodes {
		if !slices.ContainsFunc(list, func(a podexec.AgentPod) bool { return a.Node == node }) {
			fmt.Fprintf(&b, "node %s\n  not known: no agent runs there\n", node)
		}
	}
	for _, a := range list {
		fmt.Fprintf(&b, "node %s\n", a.Node)
		var out bytes.Buffer
		err := agents.ExecAgent(ctx, a, []string{"/usr/bin/weft-agent", "clean", "--from", "weft", "--dry-run"}, &out)
		if err != nil {
			fmt.Fprintf(&b, "  not known: %v\n", err)
			continue
		}
		fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n  "))
	}
	b.WriteString("cluster\n")
	for _, o := range p.Objects {
		fmt.Fprintf(&b, "  %s\n", o)
	}
	if len(p.Pods) > 0 {
		fmt.Fprintf(&b, "%d pods keep their network: %s\n", total(p.Pods), counted(p.Pods))
	}
	_, err = fmt.Fprint(r.env.Stdout, b.String())
	return err
}
