// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// NewPhase1 returns the command weft vm phase1.
func NewPhase1(env ui.Env) *cobra.Command {
	in := NewInput(env)
	var pod host.Pod
	var path, dir, agent string
	var output *printer.Format
	var undo bool
	cmd := &cobra.Command{
		Use:   "phase1 FILE",
		Short: "Apply a VM's network to its pod, or undo it",
		Long: `Applies the plan of the VM in FILE ("-" is stdin), as weft vm plan shows it, to the network namespace of a pod.
This is the first of KubeVirt's two phases and needs root. If an agent runs on the node, the agent does it. Networks
that exist stay; those whose interface is absent in FILE are removed. A failed call is rolled back; a killed one is
resumed by the next. With --undo everything is removed and the pod's network is restored.

` +
			"Keys of -o json: version, machine, in, boot, netns, namespace, container, owner, path, pod {fragment, restore},\n" + // glossary: a key
			"networks [{state, interface, podLink, fragment, restore, device, guest}], vhost.",
		Example: "  weft vm phase1 --netns /run/netns/pod1 examples/vm/masquerade.yaml\n" +
			"  weft vm phase1 --netns /run/netns/pod1 --undo examples/vm/masquerade.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := in.PlanInput(args[0])
			if err != nil {
				return err
			}
			h, err := host.Open(cmd.Context(), host.Config{
				Socket: agent, Dir: dir, Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
			})
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			record, err := applyOrUndo(cmd.Context(), h, pod, path, input, undo)
			switch {
			case err != nil || undo:
				return err
			case output.Document():
				return output.Print(env.Stdout, record)
			}
			p := plan.Plan{Pod: record.Shared}
			for _, n := range record.Networks {
				p.Networks = append(p.Networks, n.Network)
			}
			return printPlan(env.Stdout, p)
		},
	}
	in.VMFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&path, "netns", "", "`PATH` of the pod's network namespace")
	f.StringVar(&pod.ID, "pod", "", "unique `ID` of the pod, which is never reused (default: the namespace's identity)")
	f.StringVar(
		&pod.Root, "root", "",
		"`DIR`: the root of the hypervisor's container (/proc/PID/root), in which the hypervisor's user is granted vhost-net and the devices of macvtaps",
	)
	agentFlag(f, &agent)
	f.StringVar(&dir, "state-dir", host.DefaultDir, "`DIR` of the records if there is no agent")
	f.BoolVar(&undo, "undo", false, "remove everything and restore the pod's network")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// agentFlag adds the flag for the agent's socket.
func agentFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "agent", wire.DefaultSocket,
		"`PATH` of the agent's socket; without an agent, or with \"\", this program applies the network itself")
}

// netnsError returns the error for the namespace of --netns, without the path a second time.
func netnsError(path string, err error) error {
	if errors.Is(err, netns.ErrGone) {
		return model.Errorf(model.CodeInvalidNetns, "`ip netns add NAME` creates one at /run/netns/NAME",
			"--netns %q: there is no network namespace", path)
	}
	return model.Errorf(model.CodeInvalidNetns, "for example --netns /run/netns/pod1", "--netns: %w", err)
}

// applyOrUndo opens the pod and calls the host. For undo the pod may be gone.
func applyOrUndo(
	ctx context.Context, h host.Host, pod host.Pod, path string, in plan.Input, undo bool,
) (phase1.Record, error) {
	if path == "" {
		return phase1.Record{}, ui.UsageError(
			model.Errorf(model.CodeInvalidConf, "add --netns /run/netns/pod1", "--netns is missing"),
		)
	}
	var err error
	if pod.NS, err = netns.Open(path); err != nil {
		if undo {
			return phase1.Record{}, h.Stop(ctx, pod, in.VM.Key())
		}
		return phase1.Record{}, netnsError(path, err)
	}
	defer func() { _ = pod.NS.Close() }()
	if undo {
		return phase1.Record{}, h.Stop(ctx, pod, in.VM.Key())
	}
	return h.Start(ctx, pod, in)
}
