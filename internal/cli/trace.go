// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/tracer"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/packettrace"
)

const (
	traceWait = 700 * time.Millisecond // for the probe's way there and back
	sizeWait  = 250 * time.Millisecond // for its way there
	smallest  = 64                     // bytes of a packet
	maxRepeat = 30
	livePoll  = 100 * time.Millisecond
	maxLive   = 25 * time.Second // an agent ends a trace after 30
	maxTraced = 16               // nodes of a service's endpoints
	vxlanPort = 8472             // of flannel's and weft's VXLAN
)

func newTraceCmd(env Env) *cobra.Command {
	source := agents.Source{Env: env}
	f := traceFlags{explainFlags: explainFlags{source: &source}}
	cmd := &cobra.Command{
		Use:   "trace SRC DST[:PORT[/PROTOCOL]]",
		Short: "Send a packet, and show the rules that it meets on all nodes, and where it is lost",
		Long: `Sends one packet with a cookie from SRC, which is a pod or a node, to DST: a TCP SYN, a UDP datagram, or without a port
an ICMP echo request. The agents of both ends report each rule of nftables that the packet and its answer meet, on the
nodes and in the pods, of whichever program, and inside of VXLAN tunnels. The rules with which they recognize the packet
belong to their sockets: the kernel deletes them when the trace ends, or the agent is killed. It prints where the packet
was lost: the rule that dropped it, or the last place where it was seen and the next where it was not. The exit code is
0 if the packet arrived and was answered, and 1 otherwise; an answer to UDP is not expected.

DST may be a Service of Kubernetes: then it shows to which endpoint its address was translated. Where a packet of --size
is lost between nodes, smaller ones are sent to find the largest that passes.

Keys of -o json: {from, to, service, protocol, port, state, where, cause, object, faults, passes, drop, counters
[{node, pod, name, by}], steps [{node, pod, micros, chain, table, verdict, rule, in, out, from, to}]}; with --repeat
{sent, arrived, losses [{count, report}]}.`,
		Example: "  weft trace shop/web shop/db:5432\n" +
			"  weft trace --dir /run/weft/lab --size 1500 web 10.42.2.9",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, env, args[0], args[1]) },
	}
	f.flags(cmd)
	fs := cmd.Flags()
	fs.IntVar(
		&f.size,
		"size",
		0,
		"size of the packet in `BYTES`, with its IP header; it is not fragmented (default: the smallest)",
	)
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print the rules of weft that pass the packet on, too")
	fs.IntVar(&f.repeat, "repeat", 1, "`COUNT` of packets, one after another")
	fs.BoolVar(&f.live, "live", false,
		"send nothing: show the next packet that SRC itself sends to DST, also of a VM's guest")
	fs.DurationVar(&f.wait, "wait", 20*time.Second, "`DURATION` to wait for a packet with --live")
	fs.BoolVarP(&f.six, "ipv6", "6", false, "use IPv6 where both ends have both families")
	cmd.ValidArgsFunction = complete.Args(source.PodsAndNodes, source.PodsAndNodes)
	return cmd
}

type traceFlags struct {
	explainFlags
	size, repeat int
	six, live    bool
	wait         time.Duration
}

func (f *traceFlags) run(cmd *cobra.Command, env Env, src, dst string) error {
	if f.size < 0 || f.size > 65535 {
		return ui.UsageError(model.OutOfRange("--size", f.size, "0 to 65535", 1500))
	}
	q, err := f.parse(src, dst)
	if err != nil {
		return err
	}
	if err := traceable(q); err != nil {
		return err
	}
	if f.repeat < 1 || f.repeat > maxRepeat {
		return ui.UsageError(model.OutOfRange("--repeat", f.repeat, fmt.Sprintf("1 to %d", maxRepeat), 10))
	}
	if err := f.checkLive(cmd); err != nil {
		return err
	}
	c, err := f.source.Open(cmd.Context())
	if err != nil {
		return err
	}
	series := packettrace.Series{Losses: []packettrace.Loss{}}
	var report packettrace.Report
	for range f.repeat {
		x := newExplanation(c)
		if report, err = f.trace(cmd.Context(), x, q); err != nil {
			return err
		}
		series.Add(report)
	}
	switch {
	case f.output.Document() && f.repeat > 1:
		err = f.output.Print(env.Stdout, series)
	case f.output.Document():
		err = f.output.Print(env.Stdout, report)
	case f.repeat > 1:
		series.Text(env.Stdout, f.verbose)
	default:
		report.Text(env.Stdout, f.verbose)
	}
	if err == nil && series.Arrived < series.Sent {
		return ui.Exit(ui.Bad)
	}
	return err
}

// traceable refuses protocols of which no packet is sent.
func traceable(q query) error {
	if q.protocol != model.SCTP {
		return nil
	}
	return ui.UsageError(
		model.Errorf(model.CodeInvalidConf, "tcp, udp, or no port for ICMP", "%s: SCTP cannot be traced", q.to),
	)
}

// checkLive checks the flags of a live trace.
func (f *traceFlags) checkLive(cmd *cobra.Command) error {
	if f.wait < time.Second || f.wait > maxLive {
		return ui.UsageError(model.OutOfRange("--wait", f.wait, fmt.Sprintf("1s to %s", maxLive), "20s"))
	}
	for _, name := range []string{"size", "repeat"} {
		if f.live && cmd.Flags().Changed(name) {
			return ui.UsageError(
				model.Errorf(model.CodeInvalidConf, "leave it out: a live trace sends nothing", "--live with --%s", name),
			)
		}
	}
	if !f.live && cmd.Flags().Changed("wait") {
		return ui.UsageError(model.Errorf(model.CodeInvalidConf, "add --live", "--wait is of a live trace"))
	}
	return nil
}

// trace sends a probe and returns what became of it.
func (f *traceFlags) trace(ctx context.Context, x *explanation, q query) (report packettrace.Report, err error) {
	if err := x.facts(ctx); err != nil {
		return report, err
	}
	if q, err = x.namedPort(ctx, q); err != nil {
		return report, err
	}
	if err := traceable(q); err != nil {
		return report, err
	}
	src, target, err := f.ends(ctx, x, q)
	if err != nil {
		return report, err
	}
	end := target
	if end.Kind == explain.OutsideEnd { // of a node's prefix, it is an address that no pod has: the packet comes to that node
		end.Node = explain.PrefixNode(x.nodes, end.Addr)
	}
	in := packettrace.Input{
		From: src, To: end, Protocol: q.protocol, Port: q.port, TunnelPort: vxlanPort, Live: f.live,
	}
	// A packet that no rule drops leaves no trace: what the kernels would do with it, at the same time, explains it.
	var why explain.Report
	var unexplained error
	pace := pace{live: f.wait, answer: traceWait}
	report, err = x.send(ctx, in, f.size, pace, func() {
		why, unexplained = x.walk(ctx, explain.Input{
			From: src, To: target, Protocol: q.protocol, Port: q.port, Nodes: x.nodes, Answers: x.answers,
		})
	})
	if report.State != packettrace.Arrived && !report.ByRule() {
		report.Faults, err = why.Faults(), errors.Join(err, unexplained)
	}
	if err == nil && report.State == packettrace.Lost && !report.ByRule() && f.size > smallest {
		report.Passes, err = x.largest(ctx, in, f.size)
	}
	return report, err
}

// ends resolves the ends of a trace.
func (f *traceFlags) ends(ctx context.Context, x *explanation, q query) (src, target explain.End, err error) {
	from, err := x.resolve(ctx, q.from, q.network)
	if err != nil {
		return src, target, err
	}
	to, err := x.destination(ctx, q, from[0].Node)
	if err != nil {
		return src, target, err
	}
	pairs := explain.Pair(from, to)
	i := slices.IndexFunc(pairs, func(p [2]explain.End) bool { return p[0].Addr.Is6() == f.six })
	if i < 0 && len(pairs) > 0 {
		i = 0
	}
	if i < 0 {
		return src, target, model.Errorf(model.CodeInvalidConf, "", "%s and %s have no addresses of one family", q.from, q.to)
	}
	src, target = pairs[i][0], pairs[i][1]
	if src.Node == "" {
		return src, target, model.Errorf(model.CodeInvalidConf, "trace from a pod or a node",
			"%s is outside of the cluster", src.Addr)
	}
	switch {
	case src.Interface.VM && !f.live:
		return src, target, model.Errorf(model.CodeInvalidConf, "trace a packet that the guest sends with --live",
			"%s is a VM: its guest's packets cannot be sent for it", src.Name)
	case f.live && target.Kind == explain.ServiceEnd:
		return src, target, model.Errorf(model.CodeInvalidConf, "name one of its pods", "--live: %s is a Service",
			target.Name)
	}
	return src, target, nil
}

// largest returns the size in bytes of the largest packet that is not lost, smaller than one that is; 0: all are.
func (x *explanation) largest(ctx context.Context, in packettrace.Input, lost int) (int, error) {
	passes := 0
	for low, high := smallest, lost; low < high; {
		size := (low + high) / 2
		if passes == 0 {
			size = low // the smallest first
		}
		r, err := x.send(ctx, in, size, pace{answer: sizeWait}, func() {})
		switch {
		case err != nil:
			return passes, err
		case r.State != packettrace.Lost:
			passes, low = size, size+1
		case size == smallest:
			return 0, nil
		default:
			high = size
		}
	}
	return passes, nil
}

// send sends one probe of a size, or waits for a packet of others, and returns what became of it.
func (x *explanation) send(
	ctx context.Context, in packettrace.Input, size int, p pace, meanwhile func(),
) (report packettrace.Report, err error) {
	run := traceRun{x: x, request: tracer.Request{VXLANPort: vxlanPort}}
	if err := run.probe(in.From, in.To, in.Protocol, in.Port, size); err != nil {
		return report, err
	}
	run.request.Probe.Live = in.Live
	err = run.run(ctx, &in, p, meanwhile)
	return packettrace.Explain(in), err
}

// pace is how long a trace waits: for a packet of others, and for the way of the packet and its answer.
type pace struct{ live, answer time.Duration }

// traceRun is a trace on the nodes of both ends.
type traceRun struct {
	x       *explanation
	request tracer.Request
}

// probe fills in the request's probe, with a random cookie.
func (t *traceRun) probe(src, dst explain.End, protocol model.Protocol, to uint16, size int) error {
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	p := &t.request.Probe
	p.Cookie, p.Size = binary.BigEndian.Uint32(random[:]), size
	port := 40000 + binary.BigEndian.Uint16(random[4:])%20000
	switch {
	case protocol == model.TCP:
		p.Protocol = 6
	case protocol == model.UDP:
		p.Protocol = 17
	case dst.Addr.Is6():
		p.Protocol, port = 58, 0
	default:
		p.Protocol, port = 1, 0
	}
	p.From, p.To = netip.AddrPortFrom(src.Addr, port), netip.AddrPortFrom(dst.Addr, to)
	return nil
}

// run begins the trace on the nodes, sends the probe, and adds what was seen. meanwhile is called while the probe is on
// its way.
func (t *traceRun) run(ctx context.Context, in *packettrace.Input, p pace, meanwhile func()) error {
	ends := append([]explain.End{in.From, in.To}, in.To.Backends...)
	nodes, err := tracedNodes(ends)
	if err != nil {
		return err
	}
	var begun []string
	defer func() {
		for _, node := range begun { // after an error; at the end of a trace none is left
			_ = t.do(context.WithoutCancel(ctx), node, tracer.RouteEnd, t.request, nil)
		}
	}()
	for _, node := range nodes {
		begun = append(begun, node) // also one whose answer is not waited for
		if err := t.begin(ctx, node, ends); err != nil {
			return err
		}
	}
	if in.Live {
		if err := t.await(ctx, in.From.Node, p.live); err != nil {
			return err
		}
	} else if err := t.sendProbe(ctx, in.From); err != nil {
		in.SendError = strings.TrimPrefix(err.Error(), "node "+in.From.Node+": ")
	}
	back := time.After(p.answer)
	meanwhile()
	if in.SendError == "" {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-back:
		}
	}
	var errs []error
	for _, node := range nodes {
		errs = append(errs, t.end(ctx, node, in))
		begun = begun[1:]
	}
	return errors.Join(errs...)
}

// tracedNodes returns the nodes of ends, that of the first one last: what it sends first is seen by all.
func tracedNodes(ends []explain.End) (nodes []string, err error) {
	for _, e := range ends {
		if e.Node != "" && !slices.Contains(nodes, e.Node) {
			nodes = append(nodes, e.Node)
		}
	}
	if len(nodes) > maxTraced {
		return nil, model.Errorf(model.CodeInvalidConf, "trace to one of its pods",
			"service %s has endpoints on %d nodes", ends[1].Name, len(nodes))
	}
	slices.Reverse(nodes)
	return nodes, nil
}

// begin begins the trace on a node, in the node's namespace and in those of the ends that are its pods.
func (t *traceRun) begin(ctx context.Context, node string, ends []explain.End) error {
	q := t.request
	for _, e := range ends {
		if e.Kind == explain.PodEnd && e.Node == node && !slices.Contains(q.Pods, e.Name) {
			q.Pods = append(q.Pods, e.Name)
		}
	}
	return t.do(ctx, node, tracer.RouteBegin, q, nil)
}

// end ends the trace on a node, and adds what was seen there.
func (t *traceRun) end(ctx context.Context, node string, in *packettrace.Input) error {
	var r tracer.Result
	err := t.do(ctx, node, tracer.RouteEnd, t.request, &r)
	for _, s := range r.Steps {
		in.Steps = append(in.Steps, packettrace.Step{
			Node: node, Pod: s.Pod, Micros: s.Time.UnixMicro(), Packet: s.Packet,
			Family: s.Family, Table: s.Table, Chain: s.Chain, Handle: s.Handle,
			Verdict: s.Verdict, Policy: s.Policy, Rule: s.Rule, In: s.In, Out: s.Out,
			From: s.From, To: s.To, Reset: s.Reset, Key: s.Key,
		})
	}
	for _, d := range r.Drops {
		in.Drops = append(in.Drops, packettrace.Drop{
			Node: node, Pod: d.Pod, Reason: d.Reason, Function: d.Function, Interface: d.Interface,
			Answer: d.Answer, Tunnel: d.Tunnel, Key: d.Key,
		})
	}
	for _, c := range r.Counters {
		in.Counters = append(in.Counters, packettrace.Counter{Node: node, Pod: c.Pod, Name: c.Name, By: c.By})
	}
	if r.DropsError != "" {
		in.Unwatched = node + ": " + r.DropsError
	}
	switch {
	case r.Lost && in.Live: // of other packets, as a rule
		in.Incomplete = node
	case r.Lost:
		err = errors.Join(err, fmt.Errorf("node %s: some steps were lost", node))
	}
	return err
}

// sendProbe sends the probe from its source.
func (t *traceRun) sendProbe(ctx context.Context, src explain.End) error {
	q := t.request
	if src.Kind == explain.PodEnd {
		q.Pod = src.Name
	}
	return t.do(ctx, src.Node, tracer.RouteSend, q, nil)
}

// await waits until the sender's node has seen a packet.
func (t *traceRun) await(ctx context.Context, node string, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		var p tracer.Progress
		if err := t.do(ctx, node, tracer.RouteSeen, t.request, &p); err != nil {
			return err
		}
		if p.Steps > 0 {
			return nil
		}
		if time.Now().After(end) {
			probe := t.request.Probe
			return model.Errorf(model.CodeNotAvailable, "send one meanwhile, or wait longer with --wait",
				"no packet from %s to %s was seen in %s", probe.From.Addr(), probe.To, limit)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(livePoll):
		}
	}
}

func (t *traceRun) do(ctx context.Context, node, path string, q tracer.Request, into any) error {
	a, ok := t.x.cluster.Agent(node)
	if !ok && len(t.x.cluster.Agents) == 1 {
		a, ok = t.x.cluster.Agents[0], true // the agent that --state-dir names
	}
	if !ok {
		return fmt.Errorf("no agent on %s", node)
	}
	return a.Do(ctx, adminapi.Request{Method: http.MethodPost, Path: path, Body: q, Timeout: askTimeout}, into)
}
