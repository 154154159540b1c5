// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/nodestatus"
)

// Limits of weft status.
const (
	statusTimeout = 5 * time.Second // for all agents together
	sharedTimeout = 3 * time.Second // for the check of the datastore, meanwhile
	statusPause   = time.Second     // between two attempts of --wait
)

func newStatusCmd(env Env) *cobra.Command {
	source := agents.Source{Env: env}
	var output *printer.Format
	var watch *printer.Watch
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a cluster's agents, mesh, policies and addresses, and what is wrong",
		Long: `Asks the agents of all nodes, for at most five seconds, and prints sums and then the findings, worst first, each with
its node and a hint. An agent that does not answer is a finding. Each agent compares all its attachments and VMs with
the kernel, reports its mesh, policies, address blocks and connection table, and makes the checks of weft doctor,
weft mesh ping (to at most 32 peers) and weft ipam check; this command checks the datastore. What was not checked in
time is a finding of level skip. The exit code is 1 if a finding is bad.

Keys of -o json: good, nodes, answered, versions, total, fullest, findings [{level, node, check, message, hint}],
statuses [{node, version, attachments, unfinished, pending, releasing, broken, vms, migrations, peers, reached, mtu,
worst {node, peer, mtu, passes, fault}, policies, incompletePolicies, deniedPackets, deniedPerMinute, blocks,
freeAddresses, allocatedAddresses, pools [{name, blocks, free, allocated, size, left}], connections, maxConnections,
fastPath {mode, way, lacks, nodes, links, packets, liberal}, repairs, findings}].`,
		Example: "  weft status\n" +
			"  weft status --dir /run/weft/lab --wait 1m\n" +
			"  weft status --watch",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return ui.UsageError(model.OutOfRange("--wait", wait, "0s or more", "1m"))
			}
			var c nodestatus.Cluster
			out := output.Verdicts(env.Stdout, env.Getenv)
			err := watch.Show(cmd.Context(), out, env.Stderr, func(ctx context.Context) (_ printer.Result, err error) {
				c, err = awaitStatus(ctx, &source, wait)
				return statusResult(c), err
			})
			if err == nil && !c.Good && !watch.On() {
				return ui.Exit(ui.Bad)
			}
			return err
		},
	}
	source.Flags(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "`DURATION` to wait until nothing is bad")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	watch = output.Watch(cmd.Flags())
	cmd.MarkFlagsMutuallyExclusive("wait", "watch")
	return cmd
}

// statusResult is the state of a cluster on one screen: numbers, then the findings, worst first.
func statusResult(c nodestatus.Cluster) printer.Result {
	var numbers printer.Table
	for _, r := range c.Rows() {
		numbers.Row("", r.Name, r.Text)
	}
	var lines []printer.Line
	for _, f := range c.FindingTexts() {
		text := string(f.Level) + ": " + f.Where + ": " + f.What
		line := printer.Line{Key: text, Text: text, Gone: "no longer reported: " + f.Where + ": " + f.What}
		if f.Hint != "" {
			line.Text += "\n  hint: " + f.Hint
		}
		lines = append(lines, line)
	}
	if c.Good && len(c.Findings) == 0 {
		lines = append(lines, printer.Line{Text: "no findings"})
	}
	return printer.Result{Document: c, Tables: []printer.Table{numbers}, Lines: lines}
}

// awaitStatus asks until nothing is bad, for at most that time. An API server that does not answer is asked again, too;
// the error is that of the last attempt.
func awaitStatus(ctx context.Context, source *agents.Source, wait time.Duration) (nodestatus.Cluster, error) {
	for end := time.Now().Add(wait); ; {
		s, err := openStatus(ctx, source)
		if err == nil && s.Good || ui.IsUsageError(err) {
			return s, err
		}
		if !time.Now().Add(statusPause).Before(end) {
			if err != nil && wait > 0 {
				err = fmt.Errorf("the last attempt within %s: %w", wait, err)
			}
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(statusPause):
		}
	}
}

// openStatus finds the cluster and asks it.
func openStatus(ctx context.Context, source *agents.Source) (nodestatus.Cluster, error) {
	limited, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	c, err := source.Open(limited)
	if err != nil {
		return nodestatus.Cluster{}, err
	}
	return askStatus(ctx, c)
}

// askStatus asks all agents and the datastore at the same time. An agent that does not answer is no error, unless the
// user may ask none.
func askStatus(ctx context.Context, c agents.Cluster) (nodestatus.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []nodestatus.Status
	var shared nodestatus.Shared
	var forbidden error
	silent := map[string]string{}
	var group errgroup.Group
	group.Go(func() error {
		shared = sharedStatus(ctx, c.Objects)
		return nil
	})
	// All at the same time: agents that hang must not use up the time of others.
	for _, a := range c.Agents {
		group.Go(func() error {
			var s nodestatus.Status
			err := a.Do(ctx, adminapi.Request{Method: http.MethodGet, Path: adminapi.RouteStatus, Timeout: statusTimeout}, &s)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent[a.Node] = err.Error()
				if errors.Is(err, store.ErrForbidden) {
					forbidden = err
				}
				return nil
			}
			all = append(all, s)
			return nil
		})
	}
	_ = group.Wait() // errors are findings
	if len(all) == 0 && forbidden != nil {
		return nodestatus.Cluster{}, forbidden
	}
	return nodestatus.Merge(all, silent, shared), nil
}

// sharedStatus checks the address pools as weft ipam check does.
func sharedStatus(ctx context.Context, objects store.Objects) nodestatus.Shared {
	const check = "ipam check"
	if objects == nil {
		return nodestatus.Shared{}
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	report, err := audit.Inspect(ctx, objects)
	if err != nil {
		hint, message := "weft ipam check takes longer", err.Error()
		var fault *model.Error
		if errors.As(err, &fault) && fault.Hint != "" {
			hint, message = fault.Hint, strings.TrimSuffix(message, " ("+fault.Hint+")")
		}
		return nodestatus.Shared{Findings: []nodestatus.Finding{{
			Level: nodestatus.Skip, Check: check, Hint: hint, Message: "the datastore was not checked: " + message,
		}}}
	}
	var out nodestatus.Shared
	usage := report.Usage()
	for _, u := range usage.Pools {
		p := nodestatus.Pool{Name: u.Pool, Size: u.Total}
		if usage.Known {
			p.Left = u.Free
		}
		out.Pools = append(out.Pools, p)
	}
	for _, f := range report.Findings {
		hint := "weft ipam check"
		if f.Fix != "" {
			hint = "weft ipam check --fix: " + f.Fix
		}
		out.Findings = append(out.Findings, nodestatus.Finding{
			Level: nodestatus.Warn, Check: check, Message: f.Object + ": " + f.Msg, Hint: hint,
		})
	}
	return out
}
