// SPDX-License-Identifier: Apache-2.0

// Package observe is the command weft observe: it asks the agents of a cluster for their flows, names both ends of each,
// selects, merges them by time and prints them.
package observe

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// Formats of -o of this command alone.
const (
	compact = "compact"
	table   = "table"
	lines   = "jsonl"
)

// NewCmd returns the command.
func NewCmd(env ui.Env) *cobra.Command {
	f := flags{source: &agents.Source{Env: env}}
	f.filters.source = f.source
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Show connections of the cluster with names and verdicts, and denied packets",
		Long: `Asks the agents of all nodes for the connections that their kernels track, with the pods, VMs, services and nodes at
both ends, and the policy and rule that allowed them; and for the packets that policies denied. Without --follow it
prints the connections that are tracked now, and with it each one that begins or ends from then on. Filters of different
fields are combined; several values of one field are alternatives, in one flag with commas, or in several. Both nodes of a connection report
it, each with what its own policies decided. Agents observe nothing until they are asked. A node that does not answer, and
flows that were lost because they were too many, are reported on stderr.

Keys of -o jsonl, one document for each flow, and of -o json, a list of them: {time, node, kind, protocol, from, to,
via, masquerade, direction, verdict, decisions [{direction, allowed, policies, rule}], reason, forth, back}; from, to and
via are {address, port, kind, name, pod, node, network}, forth and back {packets, bytes}.`,
		Example: "  weft observe --follow\n" +
			"  weft observe -f --to-pod shop/db --verdict denied,dropped\n" +
			"  weft observe -f -n shop --not --port 53\n" +
			"  weft observe --dir /run/weft/lab -o jsonl",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), env) },
	}
	f.source.Flags(cmd)
	fs := cmd.Flags()
	fs.BoolVarP(&f.follow, "follow", "f", false, "print what begins, ends or is denied from now on, until interrupted")
	fs.BoolVarP(&f.all, "all", "A", false, "print connections without a pod or a VM, too, such as those of nodes")
	fs.BoolVar(&f.numeric, "numeric", false, "print addresses without names")
	f.filters.flags(cmd)
	f.output = printer.Flag(fs, compact, table, lines, printer.JSON)
	return cmd
}

type flags struct {
	source               *agents.Source
	follow, numeric, all bool
	output               *printer.Format
	filters              filters
}

func (f *flags) run(ctx context.Context, env ui.Env) error {
	if f.follow && f.output.Document() {
		return ui.UsageError(model.Errorf(model.CodeInvalidConf, "use -o jsonl, one document for each flow",
			"-o %s: flows that are followed are no document", f.output))
	}
	if err := f.filters.check(); err != nil {
		return err
	}
	c, err := f.source.Open(ctx)
	if err != nil {
		return err
	}
	var labelsOf flow.Labels
	if f.filters.filter.Uses(flow.FieldLabel) {
		pods, err := readLabels(ctx, c)
		if err != nil {
			return err
		}
		labelsOf = pods.of(ctx)
	}
	out := f.sink(env.Stdout)
	m := merger{directory: flow.NewDirectory(), errs: env.Stderr, known: f.filters.nearest, emit: func(r flow.Record) error {
		if !f.all && !r.HasEndpoint() || !f.filters.filter.Match(r, labelsOf) {
			return nil
		}
		return out.record(r)
	}}
	if err := addServices(ctx, c, m.directory); err != nil {
		ui.Warn(env.Stderr, err)
	}
	if err := m.run(ctx, c, f.follow); err != nil {
		return err
	}
	return out.end()
}

// sink prints flows.
func (f *flags) sink(w io.Writer) sink {
	switch {
	case f.output.Document():
		return &documents{f.output, w, []flow.Record{}}
	case f.output.Is(lines):
		return jsonLines{w}
	case f.output.Is(table):
		return &rows{w: w, numeric: f.numeric}
	}
	return text{w, f.numeric}
}

// mergeDelay is how long a flow waits for earlier ones of other nodes.
const mergeDelay = time.Second
