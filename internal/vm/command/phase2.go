// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/domain"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// NewPhase2 returns the command weft vm phase2.
func NewPhase2(env ui.Env) *cobra.Command {
	in := NewInput(env)
	var path, pod, dir, agent, socket string
	cmd := &cobra.Command{
		Use:   "phase2 FILE",
		Short: "Print a VM's devices for its hypervisor, and serve weft-guest",
		Long: `Prints the devices of the VM in FILE ("-" is stdin), which weft vm phase1 has created in the pod, as libvirt XML.
Then it serves weft-guest until it is interrupted: each weft-guest that connects gets the guest's configuration and
open sockets. If an agent runs on the node, the agent serves weft-guest and this command returns at once.`,
		Example: "  weft vm phase2 --netns /run/netns/pod1 examples/vm/masquerade.yaml\n" +
			"  weft vm phase2 --netns /run/netns/pod1 --agent \"\" examples/vm/direct.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := in.PlanInput(args[0])
			if err != nil {
				return err
			}
			if path == "" {
				return ui.UsageError(model.Errorf(model.CodeInvalidConf, "add --netns /run/netns/pod1", "--netns is missing"))
			}
			h, err := host.Open(cmd.Context(), host.Config{
				Socket: agent, Dir: dir, Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
			})
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			return printAndServe(cmd.Context(), env, h, input.VM.Key(), path, pod, socket)
		},
	}
	in.VMFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&path, "netns", "", "`PATH` of the pod's network namespace")
	f.StringVar(&pod, "pod", "", "`ID` of the pod, as for weft vm phase1")
	agentFlag(f, &agent)
	f.StringVar(&dir, "state-dir", host.DefaultDir,
		"`DIR` of the records of weft vm phase1 if there is no agent")
	f.StringVar(&socket, "socket", host.GuestSocket,
		"`PATH` of the unix socket for weft-guest; @NAME is an abstract one in the pod's network namespace")
	return cmd
}

// printAndServe prints the devices and serves weft-guest.
func printAndServe(ctx context.Context, env ui.Env, h host.Host, key, path, id, socket string) error {
	ns, err := netns.Open(path)
	if err != nil {
		return netnsError(path, err)
	}
	defer func() { _ = ns.Close() }()
	pod := host.Pod{NS: ns, ID: id}
	record, err := host.FindInPod(ctx, h, pod, key)
	if err != nil {
		return err
	}
	var devices []model.VMDevice
	for _, n := range record.Networks {
		if n.State != phase1.Finished {
			return model.Errorf(model.CodeInvalidEnv, "run weft vm phase1 to finish it", "VM %s: network %s is %s",
				record.VM, n.Interface.Name, n.State)
		}
		devices = append(devices, n.Device)
	}
	if err := record.Check(ctx, ns); err != nil {
		return err
	}
	text, err := domain.XML(devices)
	if err != nil {
		return err
	}
	local, ok := h.(*host.Local)
	if !ok {
		_, err = io.WriteString(env.Stdout, text)
		_, _ = fmt.Fprintln(env.Stderr, "weft: the agent serves weft-guest at", host.GuestSocket, "in the pod")
		return err
	}
	ended, err := local.StartServing(record, ns, socket)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(env.Stdout, text); err != nil {
		return err
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return err
}
