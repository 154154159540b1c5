// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/migration"
)

// NewMoves returns the command weft vm moves.
func NewMoves(env ui.Env) *cobra.Command {
	var stateDir string
	var watch *printer.Watch
	cmd := &cobra.Command{
		Use:   "moves",
		Short: "List the VMs on this node that keep their addresses during a live migration",
		Long: `Lists the attachments on this node of virtual machines that keep their addresses, as this node's agent knows them.
The state is "here" where the VM runs, "awaited" on the target of a migration, "left" on its source.

` +
			"Keys of -o json: [{machine: {namespace, name}, attachment: {network, containerID, ifName}, addresses, state}].", // glossary: a key
		Example: "  weft vm moves\n" +
			"  weft vm moves --state-dir /run/weft/lab/nodes/node1/agent -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return watch.Show(cmd.Context(), env.Stdout, env.Stderr, func(ctx context.Context) (printer.Result, error) {
				all, err := migration.ListAttachments(ctx, adminapi.InStateDir(stateDir))
				return movesResult(all), err
			})
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", config.Default().StateDir, "state `DIR` of the agent")
	watch = printer.Objects(cmd.Flags(), false).Watch(cmd.Flags())
	return cmd
}

func movesResult(all []migration.Attachment) printer.Result {
	t := printer.Table{Header: []string{"VM", "STATE", "ADDRESSES", "NETWORK", "INTERFACE", "CONTAINER"}}
	for _, a := range all {
		var addrs []string
		for _, addr := range a.Addresses {
			addrs = append(addrs, addr.String())
		}
		t.Row(a.VM.String(), a.VM.String(), string(a.State), strings.Join(addrs, ","), a.Key.Network, a.Key.IfName,
			a.Key.ContainerID)
	}
	return printer.Result{Document: all, Tables: []printer.Table{t}}
}

// NewHere returns the command weft vm here.
func NewHere() *cobra.Command {
	var stateDir, pod string
	cmd := &cobra.Command{
		Use:   "here NAMESPACE/VM",
		Short: "Report that a migrated VM runs on this node now",
		Long: `Requests that this node's agent move a VM's addresses to this node at once. This is not needed if the VM
announces itself, as QEMU does for its guests after a migration, or if KubeVirt reports it in the VM's status. If the
VM has several pods on this node, --pod selects the one that it runs in.`,
		Example: "  weft vm here default/direct\n" +
			"  weft vm here shop/db --pod virt-launcher-db-x7k2p",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok || namespace == "" || name == "" {
				return ui.UsageError(
					model.Errorf(model.CodeInvalidConf, "for example default/db", "VM %q is not NAMESPACE/NAME", args[0]),
				)
			}
			return migration.ReportHere(cmd.Context(), adminapi.InStateDir(stateDir), namespace, name, pod)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", config.Default().StateDir, "state `DIR` of the agent")
	cmd.Flags().StringVar(&pod, "pod", "", "`NAME` of the VM's pod on this node (default: the only one)")
	return cmd
}
