// SPDX-License-Identifier: Apache-2.0

// Package observe is the command weft observe: it asks the agents of a cluster for their flows, names both ends of each,
// selects, merges them by time and prints them.
package observe

import (
	"context"
	"errors"
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

// NewCmd returns the command. explain is for --why.
func NewCmd(env ui.Env, explain Explain) *cobra.Command {
	f := flags{source: &agents.Source{Env: env}}
	f.filters.source = f.source
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Show connections of the cluster with names and verdicts, and denied packets",
		Long: `Asks the agents of all nodes for the connections that their kernels track, with the pods, VMs, services and nodes at
both ends, and the policy and rule that allowed them; and for the packets that policies denied. Without --follow it
prints the connections that are tracked now, and with it each one that begins or ends from then on. Filters of different
fields are combined; several values of one field are alternatives, in one flag with commas, or in several. Both nodes of
a connection report it, each with what its own policies decided. Agents observe nothing until they are asked, unless
their configuration has observe.level. A node that does not answer, and flows that were lost because they were too many,
are reported on stderr.

Keys of -o jsonl, one document for each flow, and of -o json, a list of them: {time, node, kind, protocol, from, to,
via, masquerade, direction, state, verdict, decisions [{direction, allowed, policies, rule, text, chain, set, element}], reason, forth,
back, count, until}; from, to and via are {address, port, kind, name, pod, node, network, labels}, forth and back
{packets, bytes}. With count it is the sum of so many flows, from time until until.`,
		Example: "  weft observe --follow\n" +
			"  weft observe -f --to-pod shop/db --verdict denied,dropped\n" +
			"  weft observe -f -n shop --not --port 53\n" +
			"  weft observe --since 5m --rate\n" +
			"  weft observe --duration 10m -n shop --suggest-policy\n" +
			"  weft observe --dir /run/weft/lab -o jsonl",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), env, explain) },
	}
	f.source.Flags(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&f.tls, "tls", false,
		"ask the agents by their listeners (observe.listen), which need the right to get flows.weft.dev and not pods/exec")
	fs.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the token for --tls (default: the token of the kubeconfig)")
	fs.BoolVarP(&f.follow, "follow", "f", false, "print what begins, ends or is denied from now on, until interrupted")
	fs.DurationVar(&f.span, "duration", 0, "follow for a `DURATION`")
	fs.StringVar(&f.since, "since", "", "print the flows that agents have kept since a `TIME`, or for a duration such as 5m")
	fs.StringVar(&f.until, "until", "", "with --since: print only flows until a `TIME`, or a duration ago")
	fs.IntVar(&f.first, "first", 0, "print only the first `COUNT` flows, and end")
	fs.IntVar(&f.last, "last", 0, "print only the last `COUNT` flows")
	fs.BoolVarP(&f.all, "all", "A", false, "print connections without a pod or a VM, too, such as those of nodes")
	fs.BoolVar(&f.numeric, "numeric", false, "print addresses without names")
	fs.BoolVar(&f.rate, "rate", false, "print at the end how many flows were between which ends, the most first")
	fs.BoolVar(&f.suggest, "suggest-policy", false,
		"print at the end NetworkPolicies that allow the flows that were allowed, and nothing else to or from their pods")
	fs.BoolVar(&f.why, "why", false, "print the rules of nftables that decided, and what weft explain says about the connection now, too")
	f.filters.flags(cmd)
	f.output = printer.Flag(fs, compact, table, lines, printer.JSON)
	cmd.MarkFlagsMutuallyExclusive("rate", "suggest-policy", "first", "last")
	cmd.MarkFlagsMutuallyExclusive("until", "follow", "duration")
	cmd.MarkFlagsMutuallyExclusive("last", "follow")
	cmd.MarkFlagsMutuallyExclusive("why", "tls") // listeners serve flows only
	cmd.MarkFlagsMutuallyExclusive("follow", "duration")
	for _, flag := range []string{"rate", "suggest-policy"} {
		cmd.MarkFlagsMutuallyExclusive(flag, "output")
	}
	return cmd
}

type flags struct {
	source               *agents.Source
	follow, numeric, all bool
	rate, suggest, why   bool
	first, last          int
	span                 time.Duration
	since, until         string
	tls                  bool
	tokenFile            string
	output               *printer.Format
	filters              filters
}

// errEnough ends a command that has printed as many flows as it shall.
var errEnough = errors.New("enough flows")

// parseTime parses --since and --until.
func parseTime(flag, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(value); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, ui.Misusef("for example 5m, or 2026-01-02T15:04:05Z", "%s %q is neither a duration nor a time", flag, value)
	}
	return t, nil
}

// question checks the flags, and returns what the agents are asked.
func (f *flags) question() (q question, err error) {
	switch {
	case f.tokenFile != "" && !f.tls:
		return q, ui.Misusef("add --tls", "--token-file %s is for --tls only", f.tokenFile)
	case f.span < 0 || f.last < 0 || f.first < 0:
		return q, ui.Misusef("for example --duration 1m, or --last 20", "--duration, --first and --last are not negative")
	case f.until != "" && f.since == "":
		return q, ui.Misusef("for example --since 10m --until 5m", "--until needs --since")
	case f.follow && f.output.Document():
		return q, ui.UsageError(model.Errorf(model.CodeInvalidConf, "use -o jsonl, one document for each flow",
			"-o %s: flows that are followed are no document", f.output))
	}
	now := time.Now()
	if q.since, err = parseTime("--since", f.since, now); err != nil {
		return q, err
	}
	if q.until, err = parseTime("--until", f.until, now); err != nil {
		return q, err
	}
	if !q.until.IsZero() && !q.since.Before(q.until) {
		return q, ui.Misusef("for example --since 10m --until 5m", "--since %s is not before --until %s", f.since, f.until)
	}
	q.why, q.filter = f.why, f.filters.filter.Local()
	q.labels = f.filters.filter.Uses(flow.FieldLabel) || f.output.Document() || f.output.Is(lines)
	q.follow = f.follow || f.span > 0
	q.tracked = !q.follow && q.since.IsZero() || f.suggest
	return q, f.filters.check()
}

// open finds the agents.
func (f *flags) open(ctx context.Context) (agents.Cluster, error) {
	if f.tls {
		return f.source.OpenListeners(ctx, f.tokenFile)
	}
	return f.source.Open(ctx)
}

func (f *flags) run(ctx context.Context, env ui.Env, explain Explain) error {
	q, err := f.question()
	if err != nil {
		return err
	}
	c, err := f.open(ctx)
	if err != nil {
		return err
	}
	labelsOf, err := f.readPods(ctx, c)
	if err != nil {
		return err
	}
	if f.filters.filter.Uses(flow.FieldPolicy) && c.Objects != nil && q.since.IsZero() { // in the past there may have been others
		if f.filters.policies, err = policyNames(ctx, c.Objects); err != nil {
			return err
		}
	}
	count := 0
	m := newMerger(env.Stderr)
	out := f.sink(env, labelsOf, m.answered, func(r flow.Record) ([]string, error) { return explain(ctx, c, r) })
	if f.filters.labels {
		m.podsKnown = func() bool { return f.filters.pods.known(ctx) }
	}
	m.known = func(d *flow.Directory) error { return f.filters.nearest(ctx, d, q.follow) }
	m.emit = func(r flow.Record) error {
		if !f.all && !r.HasEndpoint() || !f.filters.filter.Match(r, labelsOf) {
			return nil
		}
		if !q.until.IsZero() && r.Time.After(q.until) {
			return nil
		}
		count++
		if err := out.record(r); err != nil || count != f.first {
			return err
		}
		return errEnough
	}
	if err := addNames(ctx, c, m.directory); err != nil {
		ui.Warn(env.Stderr, err)
	}
	limited, cancel := context.WithCancel(ctx)
	if f.span > 0 {
		limited, cancel = context.WithTimeout(ctx, f.span)
	}
	defer cancel()
	if err := m.run(limited, c, q); err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if f.span > 0 && len(m.answered) == 0 && ctx.Err() == nil {
		return model.Errorf(model.CodeNotAvailable, "the reasons are above", "no agent has answered within %s", f.span)
	}
	if !q.since.IsZero() && !q.follow && !m.keeping && ctx.Err() == nil {
		return model.Errorf(model.CodeNotAvailable, "set observe.level in the agents' configuration",
			"--since %s: no node that has answered keeps flows", f.since)
	}
	if count == 0 && !q.follow && !f.output.Document() {
		ui.Warn(env.Stderr, errors.New("no flow matches"))
		if err := f.filters.checkLabels(ctx, m.directory); err != nil {
			ui.Warn(env.Stderr, err)
		}
	}
	return out.end()
}

// readPods reads the cluster's pods if they are needed, and returns the labels that they have now. Those of the time of a flow
// are in the flow, unless its agent does not report them.
func (f *flags) readPods(ctx context.Context, c agents.Cluster) (flow.Labels, error) {
	f.filters.labels = f.filters.filter.Uses(flow.FieldLabel)
	f.filters.workloads = f.suggest || f.filters.filter.Uses(flow.FieldWorkload)
	f.filters.past = f.since != ""
	switch {
	case f.filters.workloads:
		var err error
		if f.filters.pods, err = readPods(ctx, c); err != nil {
			return nil, err
		}
		f.filters.filter.SetWorkloads(f.filters.pods.workloads(ctx))
	case f.filters.labels:
		f.filters.pods = &pods{objects: c.Objects}
	default:
		return nil, nil
	}
	return f.filters.pods.labels(ctx), nil
}

// sink prints flows.
func (f *flags) sink(
	env ui.Env, labels flow.Labels, answered map[string]bool, explain func(flow.Record) ([]string, error),
) sink {
	printed := f.printed(env.Stdout)
	if f.why && (f.output.Is(table) || f.output.Is(compact)) {
		printed = &explained{sink: printed, w: env.Stdout, errs: env.Stderr, explain: explain, seen: map[talkers]bool{}}
	}
	switch {
	case f.rate:
		return &rates{f.output, env.Stdout, map[talkers]*sum{}, answered}
	case f.suggest:
		return suggestion{flow.NewSuggestion(labels), env.Stdout, env.Stderr, f.filters.filter.Uses(flow.FieldVerdict)}
	case f.last > 0:
		return &last{to: printed, n: f.last}
	}
	return printed
}

// printed prints each flow.
func (f *flags) printed(w io.Writer) sink {
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
const mergeDelay = 400 * time.Millisecond
