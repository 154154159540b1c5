// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/probe"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/plural"
)

func newMeshPingCmd(env Env) *cobra.Command {
	var stateDir string
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "ping [PEER…]",
		Short: "Probe peers over the underlay and the overlay, and report where packets are lost",
		Long: `Probes all peers, or the named ones, from the network namespace in which the command runs: over the underlay, and
over the overlay with a small packet, with one of the pods' MTU that must not be fragmented, and with datagrams that use
checksum offload. The peers' kernels answer; nothing needs to run there. A fault is one of underlay (the network or the
peer), encapsulation (a closed port, a wrong table), mtu (the largest size that passes is measured) and checksum. The
exit code is 1 if a probe fails, or if the plan has no route to a peer. It needs root; with --node, in a cluster, the
right to create pods/exec instead.

Keys of -o json: results [{peer, backend, underlay, overlay, underlayState, overlayState, largeState, checksumState,
mtu, passes, fault, message, hint}], unplanned [{peer, message, learned}]. Peers with learned set are reached by routes of
BGP: routers may be between, and these peers are not probed.`,
		Example: "  weft mesh ping node2\n  weft mesh ping --node node1",
		RunE: func(cmd *cobra.Command, peers []string) error {
			status, err := reconcile.AskStatus(cmd.Context(), stateDir)
			if err != nil {
				return err
			}
			return pingMesh(cmd, env, status.Topology, peers, output)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", env.Variable(ui.StateDirVariable, meshStateDir), "state `DIR` of the agent")
	output = printer.Objects(cmd.Flags(), true)
	cmd.ValidArgsFunction = complete.Every(func(ctx context.Context) ([]string, error) {
		status, err := reconcile.AskStatus(ctx, stateDir)
		var out []string
		for _, p := range status.Topology.Peers {
			out = append(out, p.Name)
		}
		return out, err
	})
	agents.OnNode(env, cmd, "state-dir")
	return cmd
}

// pingReport is the output of weft mesh ping.
type pingReport struct {
	Results []probe.Result `json:"results"`
	// Unplanned are peers to which the plan has no route of its own; they are not probed.
	Unplanned []probe.Unplanned `json:"unplanned"`
}

func pingMesh(cmd *cobra.Command, env Env, t mesh.Topology, peers []string, output *printer.Format) error {
	targets, missing, err := probe.Targets(t, peers)
	if err != nil {
		return err
	}
	begin := time.Now()
	results, err := probe.All(cmd.Context(), nil, targets)
	if err != nil {
		return model.Errorf(model.CodeNotAvailable, "run it as root on the node, or with weft lab exec NODE",
			"mesh ping: %w", err)
	}
	out := pingReport{results, missing}
	if output.Document() {
		err = output.Print(env.Stdout, out)
	} else {
		err = out.print(env.Stdout, output, time.Since(begin))
	}
	failed := out.unplanned()
	for _, r := range results {
		if r.Problem != probe.None {
			failed++
		}
	}
	if err == nil && failed > 0 {
		err = ui.Exit(1)
	}
	return err
}

// unplanned counts the peers without a route.
func (p pingReport) unplanned() int {
	n := 0
	for _, u := range p.Unplanned {
		if !u.Learned {
			n++
		}
	}
	return n
}

// print prints a table of the peers, and what is wrong.
func (p pingReport) print(w io.Writer, output *printer.Format, took time.Duration) error {
	t := printer.Table{
		Header: []string{
			"PEER", "BACKEND", "PODS", "UNDERLAY", "OVERLAY", "MTU", "PASSES", "CHECKSUMS", "FAULT", "UNDERLAY ADDRESS",
		},
		Wide: 1,
	}
	word := func(state string) string {
		if state == "ok" || state == "unknown" || state == "broken" {
			return state
		}
		return ""
	}
	failed := 0
	for _, r := range p.Results {
		fault := string(r.Problem)
		if fault == "" {
			fault = "none"
		} else {
			failed++
		}
		passes := ""
		if r.Passes > 0 {
			passes = strconv.Itoa(r.Passes)
		}
		underlay := ""
		if r.Underlay.IsValid() {
			underlay = r.Underlay.String()
		}
		t.Row(r.Peer, r.Peer, r.Backend, r.Overlay.String(), word(r.UnderlayState), word(r.OverlayState), strconv.Itoa(r.MTU),
			passes, word(r.ChecksumState), fault, underlay)
	}
	if err := output.Tables(w, t); err != nil || output.Is(printer.Name) {
		return err
	}
	for _, r := range p.Results {
		if r.Problem != probe.None {
			fmt.Fprintf(w, "%s: %s\n  hint: %s\n", r.Problem, r.Message, r.Hint)
		}
	}
	for _, u := range p.Unplanned {
		fmt.Fprintf(w, "not probed: peer %s: %s\n", u.Peer, u.Message)
	}
	_, err := fmt.Fprintf(w, "%s, %d failed, %d unplanned (%s)\n", plural.Count(len(p.Results), "probe", "probes"), failed,
		p.unplanned(), took.Round(time.Millisecond))
	return err
}
