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

// NewPhase2 is weft vm phase2.
func NewPhase2(env ui.Env) *cobra.Command {
	in := NewInput(env)
	var path, pod, dir, agent, socket string
	cmd := &cobra.Command{
		Use:   "phase2 FILE",
		Short: "Give a machine's hypervisor its devices, and weft-guest its sockets",
		Long: `Prints the devices of the machine in FILE ("-" is stdin) in libvirt's words, as weft vm phase1 has made
them in the pod, and hands to weft-guest what it says to the guest and the open sockets for it, as often as
weft-guest is started, until this command is ended. Where an agent runs on the node, the agent hands them over, and
this command ends at once.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, err := in.Machine(args[0])
			if err != nil {
				return err
			}
			if path == "" {
				return ui.UsageError(model.Faultf(model.CodeInvalidConf, "for example /run/netns/pod1", "--netns is missing"))
			}
			h, err := host.Open(cmd.Context(), host.Config{
				Socket: agent, Dir: dir, Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
			})
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			return attend(cmd.Context(), env, h, machine.VM.Key(), path, pod, socket)
		},
	}
	in.MachineFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&path, "netns", "", "`PATH` of the pod's network namespace")
	f.StringVar(&pod, "pod", "", "`ID` of the pod, as weft vm phase1 was told it")
	agentFlag(f, &agent)
	f.StringVar(&dir, "state-dir", host.DefaultDir,
		"`DIR` where weft vm phase1 remembers what it made, where there is no agent")
	f.StringVar(&socket, "socket", host.GuestSocket,
		"`PATH` of the unix socket for weft-guest; @NAME is one of the pod's network namespace")
	return cmd
}

// attend prints the devices and gives weft-guest its wires.
func attend(ctx context.Context, env ui.Env, h host.Host, key, path, id, socket string) error {
	ns, err := netns.Open(path)
	if err != nil {
		return model.Faultf(model.CodeInvalidNetns, "", "--netns %s: %w", path, err)
	}
	defer func() { _ = ns.Close() }()
	pod := host.Pod{NS: ns, ID: id}
	record, err := host.In(ctx, h, pod, key)
	if err != nil {
		return err
	}
	var devices []model.VMDevice
	for _, n := range record.Networks {
		if n.State != phase1.Finished {
			return model.Faultf(model.CodeInvalidEnv, "weft vm phase1 goes on with it", "machine %s: network %s is %s",
				record.Machine, n.Interface.Name, n.State)
		}
		devices = append(devices, n.Device)
	}
	if err := record.Still(ctx, ns); err != nil {
		return err
	}
	text, err := domain.XML(devices)
	if err != nil {
		return err
	}
	local, ok := h.(*host.Local)
	if !ok {
		_, err = io.WriteString(env.Stdout, text)
		_, _ = fmt.Fprintln(env.Stderr, "weft: the agent hands the sockets over, at", host.GuestSocket, "in the pod")
		return err
	}
	ended, err := local.Attend(record, ns, socket)
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
