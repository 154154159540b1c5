// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/probe"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

func newMeshPingCmd(env Env) *cobra.Command {
	var stateDir, output string
	cmd := &cobra.Command{
		Use:   "ping [PEER…]",
		Short: "Probe every peer through the overlay and the wire, and tell where a fault is",
		Long: `Asks every peer, or those that are named, from the network namespace that the command runs in: over the
wire, through the overlay with a small packet and with one of the pods' MTU that nobody may cut, and by datagrams
whose checksums are left to the device. Nothing must run on the peer. The fault is told as one of underlay (the wire
or the peer), encapsulation (a port is closed, a table is wrong), mtu (how much passes is searched for) and
checksum. It exits with 1 when there is one, also when a peer is in the cluster and not reached by the plan. Needs
root.

Keys of -o json: results [{peer, backend, underlay, overlay, underlayState, overlayState, largeState, checksumState,
mtu, passes, fault, message, hint}], unplanned [{peer, message}].`,
		Example: "  weft mesh ping\n  weft lab exec node1 -- weft mesh ping --state-dir /run/weft/lab/nodes/node1/agent",
		RunE: func(cmd *cobra.Command, peers []string) error {
			if err := ui.TextOrJSON(output); err != nil {
				return err
			}
			status, err := reconcile.AskStatus(cmd.Context(), stateDir)
			if err != nil {
				return err
			}
			return pingMesh(cmd, env, status.Topology, peers, output)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", meshStateDir, "the agent's state directory")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// pinged is the outcome of weft mesh ping.
type pinged struct {
	Results []probe.Result `json:"results"`
	// Unplanned are peers that no packet is sent to.
	Unplanned []unplanned `json:"unplanned"`
}

type unplanned struct {
	Peer    string `json:"peer"`
	Message string `json:"message"`
}

func pingMesh(cmd *cobra.Command, env Env, t mesh.Topology, peers []string, output string) error {
	targets, missing, err := meshTargets(t, peers)
	if err != nil {
		return err
	}
	begin := time.Now()
	results, err := probe.All(cmd.Context(), nil, targets)
	if err != nil {
		return model.Faultf(model.CodeNotAvailable, "run it as root on the node, or by weft lab exec NODE",
			"mesh ping: %w", err)
	}
	out := pinged{results, missing}
	if output == "json" {
		enc := json.NewEncoder(env.Stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(out)
	} else {
		err = out.print(env.Stdout, time.Since(begin))
	}
	faults := len(missing)
	for _, r := range results {
		if r.Fault != probe.None {
			faults++
		}
	}
	if err == nil && faults > 0 {
		err = ui.Exit(1)
	}
	return err
}

// blockWay is a way that several blocks of a peer may have.
type blockWay struct {
	link string
	v6   bool
}

// askable are the ways that are tried: of the blocks of one way the first, for who refuses what no pod has does not say
// it often.
func askable(p mesh.Peer, reaches []mesh.Reach) []mesh.Reach {
	asked := map[blockWay]bool{}
	return slices.DeleteFunc(slices.Clone(reaches), func(r mesh.Reach) bool {
		way := blockWay{r.Link, r.CIDR.Addr().Is6()}
		if !slices.Contains(p.Blocks, r.CIDR) {
			return false
		}
		again := asked[way]
		asked[way] = true
		return again
	})
}

// meshTargets are what is asked of the peers of a topology; of all when none are named.
func meshTargets(t mesh.Topology, peers []string) (targets []probe.Target, missing []unplanned, err error) {
	missing = []unplanned{}
	for _, name := range peers {
		if !slices.ContainsFunc(t.Peers, func(p mesh.Peer) bool { return p.Name == name }) {
			return nil, nil, model.Faultf(model.CodeInvalidConf, "weft mesh shows them", "peer %q is not in the mesh of node %s",
				name, t.Self)
		}
	}
	for _, p := range t.Peers {
		if len(peers) > 0 && !slices.Contains(peers, p.Name) {
			continue
		}
		reaches := t.Reaches(p)
		for _, r := range askable(p, reaches) {
			targets = append(targets, probe.Target{
				Name: p.Name, Backend: p.Backend, Underlay: r.Far, UnderlayMTU: r.Underlay.MTU,
				Overlay: r.CIDR.Addr(), OverlayMTU: max(r.MTU, 68), Tunnel: r.Tunnel,
			})
		}
		if wanted := len(p.PodCIDRs) + len(p.Blocks); len(reaches) < wanted || wanted == 0 && !t.Awaited(p) {
			u := unplanned{p.Name, "no plan leads to it"}
			for _, problem := range t.Problems {
				if slices.Contains(problem.Nodes, p.Name) {
					u.Message = problem.String()
				}
			}
			missing = append(missing, u)
		}
	}
	return targets, missing, nil
}

func (p pinged) print(w io.Writer, took time.Duration) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PEER\tBACK END\tPODS\tUNDERLAY\tOVERLAY\tMTU\tPASSES\tCHECKSUMS\tFAULT")
	word := func(state string) string {
		if state == "ok" || state == "unknown" || state == "broken" {
			return state
		}
		return "–"
	}
	faults := 0
	for _, r := range p.Results {
		fault := string(r.Fault)
		if fault == "" {
			fault = "none"
		} else {
			faults++
		}
		passes := "–"
		if r.Passes > 0 {
			passes = strconv.Itoa(r.Passes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", r.Peer, r.Backend, r.Overlay, word(r.UnderlayState),
			word(r.OverlayState), r.MTU, passes, word(r.ChecksumState), fault)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range p.Results {
		if r.Fault != probe.None {
			fmt.Fprintf(w, "%s: %s\n  hint: %s\n", r.Fault, r.Message, r.Hint)
		}
	}
	for _, u := range p.Unplanned {
		fmt.Fprintf(w, "not asked: peer %s: %s\n", u.Peer, u.Message)
	}
	_, err := fmt.Fprintf(w, "%d asked in %s, %d with a fault, %d without a plan\n", len(p.Results),
		took.Round(time.Millisecond), faults, len(p.Unplanned))
	return err
}
