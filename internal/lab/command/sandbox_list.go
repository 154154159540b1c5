// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/sandbox"
)

func newSandboxListCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var output *printer.Format
	var watch *printer.Watch
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the pods of a runtime",
		Long:  "Lists the pods of the runtime with their state, restarts and addresses, and what a pod is waiting for.",
		Example: "  weft sandbox list\n" +
			"  weft sandbox list -o wide\n" +
			"  weft sandbox list --watch\n" +
			"  weft sandbox list -o json",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := sandbox.NewClient(f.stateDir)
			return watch.Show(cmd.Context(), env.Stdout, env.Stderr, func(ctx context.Context) (printer.Result, error) {
				pods, err := c.List(ctx)
				return podsResult(output, pods), err
			})
		},
	}
	output = printer.Objects(cmd.Flags(), true)
	watch = output.Watch(cmd.Flags())
	return cmd
}

func podsResult(output *printer.Format, pods []sandbox.Pod) printer.Result {
	table := printer.Table{
		Header: []string{"NAMESPACE", "NAME", "STATE", "READY", "RESTARTS", "ADDRESSES", "SANDBOX", "NETNS"}, Wide: 1, Keys: 2,
	}
	for _, p := range pods {
		ready, restarts, of := 0, 0, 0
		for _, c := range p.Containers {
			restarts += c.Restarts
			if c.Kind != "container" {
				continue
			}
			of++
			if c.Ready {
				ready++
			}
		}
		id := p.ID
		if len(id) > 12 && !output.Is(printer.Wide) {
			id = id[:12]
		}
		table.Row(p.Namespace+"/"+p.Name, p.Namespace, p.Name, string(p.State), fmt.Sprintf("%d/%d", ready, of),
			strconv.Itoa(restarts), strings.Join(p.IPs, ","), id, p.Netns)
	}
	r := printer.Result{Document: pods, Tables: []printer.Table{table}}
	for _, p := range pods {
		if name := p.Namespace + "/" + p.Name; p.Reason != "" {
			r.Lines = append(r.Lines, printer.Line{Key: name, Text: name + ": " + reason(p)})
		}
	}
	return r
}

func newSandboxInspectCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var namespace string
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "inspect [NAMESPACE/]POD",
		Short: "Show everything about a pod",
		Long: "Prints a pod's sandbox, containers, network configuration, CNI results and latest errors. The keys are those of\n" +
			"`weft sandbox list -o json`, and further ones.",
		Example: "  weft sandbox inspect web\n" +
			"  weft sandbox inspect backend/db",
		Args: onePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, name := podName(args[0], namespace)
			d, err := sandbox.NewClient(f.stateDir).Get(cmd.Context(), ns, name)
			if err != nil {
				return err
			}
			return output.Print(env.Stdout, d)
		},
	}
	output = printer.Flag(cmd.Flags(), printer.JSON)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "`NAMESPACE` of a pod without one")
	cmd.ValidArgsFunction = complete.Args(f.pods)
	return cmd
}

func onePod(_ *cobra.Command, args []string) error {
	const hint = "for example default/web; `weft sandbox list` lists them"
	switch {
	case len(args) == 0:
		return ui.Misusef(hint, "no pod named")
	case len(args) > 1:
		return ui.Misusef(hint, "unexpected argument %q", args[1])
	}
	return nil
}

func newSandboxStatusCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of the runtime: networks, health, recovery",
		Long: "Prints the runtime's process, its networks and whether they are ready, and what it recovered when it started. The exit\n" +
			"code is 1 if no runtime is running for --state-dir.",
		Example: "  weft sandbox status\n" +
			"  weft sandbox status --state-dir /run/weft/sandbox",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := sandbox.NewClient(f.stateDir).Status(cmd.Context())
			if err != nil {
				return err
			}
			return output.Print(env.Stdout, st)
		},
	}
	output = printer.Flag(cmd.Flags(), printer.JSON)
	return cmd
}
