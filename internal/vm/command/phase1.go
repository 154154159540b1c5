// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// NewPhase1 is weft vm phase1.
func NewPhase1(env ui.Env) *cobra.Command {
	in := NewInput(env)
	var pod host.Pod
	var path, dir, agent, output string
	var undo bool
	cmd := &cobra.Command{
		Use:   "phase1 FILE",
		Short: "Make the network of a machine in its pod, or take it away",
		Long: `Brings what weft vm plan shows into the network namespace of a pod, for the machine in FILE ("-" is stdin):
the first of KubeVirt's two phases, for which root's rights are needed. Where an agent runs on the node, the agent
does it. Networks that are there already stay, those whose interface is absent in FILE are taken away. A call that
fails takes back what it began; one that was killed is taken up by the next. With --undo everything is taken away,
and the pod's network is what it was.

Keys of -o json: version, machine, in, boot, netns, namespace, container, owner, path, pod {fragment, restore},
networks [{state, interface, podLink, fragment, restore, device, guest}], vhost.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return ui.UsageError(fmt.Errorf("output %q is neither text nor json", output))
			}
			machine, err := in.Machine(args[0])
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
			record, err := phase1Of(cmd.Context(), h, pod, path, machine, undo)
			switch {
			case err != nil || undo:
				return err
			case output == "json":
				return ui.PrintJSON(env.Stdout, record)
			}
			p := plan.Plan{Pod: record.Pod}
			for _, n := range record.Networks {
				p.Networks = append(p.Networks, n.Network)
			}
			return printPlan(env.Stdout, p)
		},
	}
	in.MachineFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&path, "netns", "", "`PATH` of the pod's network namespace")
	f.StringVar(&pod.ID, "pod", "", "`ID` of the pod, which no other one ever has (default: the namespace's numbers)")
	f.StringVar(
		&pod.Root, "root", "",
		"`DIR`: the root of the hypervisor's container (/proc/PID/root), where the machine's user gets the node's vhost-net and its macvtaps' devices",
	)
	agentFlag(f, &agent)
	f.StringVar(&dir, "state-dir", host.DefaultDir, "`DIR` where it is remembered what was made, where there is no agent")
	f.BoolVar(&undo, "undo", false, "take everything away")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// agentFlag is about who brings machines' networks into pods.
func agentFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "agent", wire.DefaultSocket,
		"`PATH` of the agent's socket; without an agent there, or with \"\", this program does it by itself")
}

// phase1Of opens the pod and has it done. For undo the pod may be gone.
func phase1Of(
	ctx context.Context, h host.Host, pod host.Pod, path string, in plan.Input, undo bool,
) (phase1.Record, error) {
	if path == "" {
		return phase1.Record{}, ui.UsageError(
			model.Faultf(model.CodeInvalidConf, "for example /run/netns/pod1", "--netns is missing"),
		)
	}
	var err error
	if pod.NS, err = netns.Open(path); err != nil {
		if undo {
			return phase1.Record{}, h.Stop(ctx, pod, in.VM.Key())
		}
		return phase1.Record{}, model.Faultf(model.CodeInvalidNetns, "", "--netns %s: %w", path, err)
	}
	defer func() { _ = pod.NS.Close() }()
	if undo {
		return phase1.Record{}, h.Stop(ctx, pod, in.VM.Key())
	}
	return h.Start(ctx, pod, in)
}
