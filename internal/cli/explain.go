// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/bundle"
	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/progress"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/explainer"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plural"
)

// Limits of an explanation.
const (
	maxRounds  = 12 // an answer leads to further questions
	askTimeout = 5 * time.Second
	maxAsking  = 64 // agents that are asked at the same time
)

func newExplainCmd(env Env) *cobra.Command {
	source := agents.Source{Env: env}
	f := explainFlags{source: &source}
	cmd := &cobra.Command{
		Use:   "explain SRC DST[:PORT[/PROTOCOL]]",
		Short: "Explain hop by hop why a connection works or fails, without sending a packet",
		Long: `SRC and DST are pods or VMs (namespace/name), nodes, addresses, or names outside; write an IPv6 address with a port in
brackets. DST may be a Service of Kubernetes, too. PORT is a number, or the name of a port of the pod or the Service.
PROTOCOL is tcp (the default), udp or sctp; without a port it explains ping. The agents of the nodes ask their kernels
how they would forward the packet, there and back, and each hop is checked: ok, blocked, suspect (some packets are lost)
or unknown (what decides there could not be read, or was not answered), with the object that is to blame. Nothing is
changed, and nothing sent but what a kernel sends to find the neighbor that a VM's guest is. The exit code is 0 if no hop is blocked or suspect, and 1 otherwise.

Keys of -o json: a list of {from, to, protocol, port, state, forward, back}, one for each address family; forward and
back are lists of {id, where, state, cause, object, hint, evidence}. With --from there is recorded: {oldestAnswer,
facts}, the times of the oldest answer that was used and of the facts about the nodes.`,
		Example: "  weft explain shop/web shop/db:5432\n" +
			"  weft explain --dir /run/weft/lab web 10.42.2.9:53/udp",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, env, args[0], args[1]) },
	}
	f.flags(cmd)
	fs := cmd.Flags()
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print the hops that are ok, too, with the facts about each")
	fs.StringSliceVar(&f.from, "from", nil,
		"support bundle `FILE`, one for each node, or the directory of them: use their answers; what none of them has is "+
			"unknown")
	cmd.MarkFlagsMutuallyExclusive("from", "dir")
	cmd.MarkFlagsMutuallyExclusive("from", "kubeconfig")
	cmd.MarkFlagsMutuallyExclusive("from", "state-dir")
	cmd.ValidArgsFunction = complete.Args(source.Pods, source.Pods)
	return cmd
}

// flags adds the flags that name a connection.
func (f *explainFlags) flags(cmd *cobra.Command) {
	f.source.Flags(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&f.namespace, "namespace", "n", "",
		"`NAMESPACE` of pods without one (default: the kubeconfig's, or default)")
	fs.StringVar(&f.network, "network", "",
		"network of the pods' interfaces, a `NAMESPACE/NAME` (default: the cluster's network)")
	f.output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
}

type explainFlags struct {
	source             *agents.Source
	namespace, network string
	output             *printer.Format
	verbose            bool
	from               []string
}

func (f *explainFlags) run(cmd *cobra.Command, env Env, src, dst string) error {
	q, err := f.parse(src, dst)
	if err != nil {
		return err
	}
	x, err := f.open(cmd.Context())
	if err != nil {
		return err
	}
	x.line = progress.Start(env.Stderr, "waiting for "+plural.Count(len(x.cluster.Agents), "agent", "agents"))
	reports, err := x.explain(cmd.Context(), q)
	x.line.Stop()
	if err != nil {
		return err
	}
	if f.output.Document() {
		err = f.output.Print(env.Stdout, reports)
	} else {
		out := f.output.Verdicts(env.Stdout, env.Getenv)
		for _, r := range reports {
			r.Text(out, f.verbose)
		}
	}
	for _, silent := range x.silent { // a part of the answer is missing
		ui.Warn(env.Stderr, silent)
	}
	bad := slices.ContainsFunc(reports, func(r explain.Report) bool { return len(r.Faults()) > 0 })
	if err == nil && bad {
		return ui.Exit(ui.Bad)
	}
	return err
}

// open opens the cluster, or the support bundles.
func (f *explainFlags) open(ctx context.Context) (*explanation, error) {
	if len(f.from) == 0 {
		c, err := f.source.Open(ctx)
		return newExplanation(c), err
	}
	r, err := bundle.Read(f.from)
	return &explanation{nodes: r.Nodes, answers: r.Answers, objects: r.Objects}, err
}

// query is what the command line asks.
type query struct {
	from, to, network string
	protocol          model.Protocol
	port              uint16
	portName          string // of a pod or a Service, in place of port
}

// parse parses SRC and DST.
func (f *explainFlags) parse(src, dst string) (query, error) {
	p := &policyFlags{namespace: cmp.Or(f.namespace, f.source.Namespace())}
	q := query{network: f.network}
	var err error
	if q.from, err = p.peer(src); err != nil {
		return q, err
	}
	to, port, protocol, err := p.target(dst)
	if err != nil {
		return q, err
	}
	q.to, q.protocol = to, model.Protocol(protocol)
	if port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			q.port = uint16(n)
		} else {
			q.portName = port
		}
	} else if protocol != "" {
		return q, ui.UsageError(
			model.Errorf(model.CodeInvalidConf, "for example "+to+":53/udp", "%q: protocol without a port", dst),
		)
	}
	return q, nil
}

// explanation asks the agents of a cluster. Without agents it has the nodes and the answers of support bundles.
type explanation struct {
	cluster agents.Cluster
	// objects are nil if only one agent is known, or bundles without them.
	objects bundle.Objects
	nodes   map[string]explain.Node
	answers explain.Answers
	silent  []error // why agents did not answer
	line    *progress.Line
}

func newExplanation(c agents.Cluster) *explanation {
	x := &explanation{cluster: c, answers: explain.Answers{}}
	if c.Objects != nil {
		x.objects = c.Objects
	}
	return x
}

// services reports whether Services can be read. A lab has none.
func (x *explanation) services() bool { return x.objects != nil && x.cluster.Dir == "" }

// explain explains a connection in all families that both ends have.
func (x *explanation) explain(ctx context.Context, q query) ([]explain.Report, error) {
	if x.nodes == nil {
		if err := x.facts(ctx); err != nil {
			return nil, err
		}
	}
	from, err := x.resolve(ctx, q.from, q.network)
	if err != nil {
		return nil, err
	}
	if q, err = x.namedPort(ctx, q); err != nil {
		return nil, err
	}
	to, err := x.destination(ctx, q, from[0].Node)
	if err != nil {
		return nil, err
	}
	pairs := explain.Pair(from, to)
	if len(pairs) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "", "%s and %s have no addresses of one family", q.from, q.to)
	}
	var out []explain.Report
	for _, p := range pairs {
		r, err := x.walk(ctx, explain.Input{
			From: p[0], To: p[1], Protocol: q.protocol, Port: q.port, Nodes: x.nodes, Answers: x.answers,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// walk explains one connection: until there is no question left.
func (x *explanation) walk(ctx context.Context, in explain.Input) (explain.Report, error) {
	for range maxRounds {
		r, questions := explain.Explain(in)
		if len(questions) == 0 {
			return r, nil
		}
		x.ask(ctx, questions)
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	return explain.Report{}, fmt.Errorf("questions did not end after %d rounds", maxRounds)
}

// facts asks all agents for their facts. One that does not answer is reported, and is unknown in the explanation.
func (x *explanation) facts(ctx context.Context) error {
	var mu sync.Mutex
	x.nodes = map[string]explain.Node{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxAsking)
	for _, a := range x.cluster.Agents {
		group.Go(func() error {
			var n explain.Node
			err := a.Do(ctx, adminapi.Request{Method: http.MethodGet, Path: explainer.RouteFacts, Timeout: askTimeout}, &n)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				x.silent = append(x.silent, err)
				return nil
			}
			x.nodes[n.Name] = n
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(x.nodes) == 0 {
		if i := slices.IndexFunc(x.silent, func(err error) bool { return errors.Is(err, store.ErrForbidden) }); i >= 0 {
			return x.silent[i] // the others are the same
		}
		return errors.Join(x.silent...)
	}
	return nil
}

// ask puts questions to the agents of their nodes.
func (x *explanation) ask(ctx context.Context, questions []explain.Question) {
	byNode := map[string][]explain.Question{}
	for _, q := range questions {
		byNode[q.Node] = append(byNode[q.Node], q)
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxAsking)
	if x.line != nil {
		x.line.Set("waiting for the agent of " + strings.Join(slices.Sorted(maps.Keys(byNode)), ", "))
	}
	for node, list := range byNode {
		group.Go(func() error {
			got, err := x.askNode(ctx, node, list)
			mu.Lock()
			defer mu.Unlock()
			for _, q := range list {
				a, answered := got[q]
				switch {
				case err != nil:
					a = explain.Answer{Error: err.Error()}
				case !answered:
					a = explain.Answer{Error: "the agent did not answer this question"}
				}
				x.answers[q] = a
			}
			return nil
		})
	}
	_ = group.Wait() // errors are answers
}

func (x *explanation) askNode(ctx context.Context, node string, list []explain.Question) (explain.Answers, error) {
	if len(x.cluster.Agents) == 0 {
		if _, known := x.nodes[node]; !known {
			return nil, errors.New("no support bundle of " + node)
		}
		return nil, errors.New("the support bundle of " + node + " has no answer: explain the connection first")
	}
	a, ok := x.cluster.Agent(node)
	if !ok && len(x.cluster.Agents) == 1 {
		a, ok = x.cluster.Agents[0], true // the agent that --state-dir names
	}
	if !ok {
		return nil, errors.New("no agent on " + node)
	}
	var got explain.Answers
	err := a.Do(ctx, adminapi.Request{
		Method: http.MethodPost, Path: explainer.RouteAnswers, Body: list, Timeout: askTimeout,
	}, &got)
	return got, err
}

// hostNetwork returns the node of a pod that uses its node's network; empty: there is no such pod.
func (x *explanation) hostNetwork(ctx context.Context, name string) (string, error) {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok || x.objects == nil {
		return "", nil
	}
	o, err := x.objects.Get(ctx, store.Pods(), store.PodKey(namespace, pod))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("pod %s: %w", name, err)
	}
	p, err := o.Pod()
	if err != nil || !p.HostNetwork {
		return "", err
	}
	return p.Node, nil
}

// vmPod returns the pod (namespace/name) in which a VM runs; empty: there is no such VM.
func (x *explanation) vmPod(ctx context.Context, name string) (string, error) {
	namespace, vm, ok := strings.Cut(name, "/")
	if !ok || x.objects == nil {
		return "", nil
	}
	all, err := x.objects.List(ctx, store.Pods())
	if err != nil {
		return "", fmt.Errorf("pods: %w", err)
	}
	for _, o := range all {
		p, err := o.Pod()
		if err == nil && p.Namespace == namespace && p.Annotations[multinet.DomainKey] == vm && p.Phase == "Running" {
			return namespace + "/" + p.Name, nil
		}
	}
	return "", nil
}

// outside returns the addresses of a name outside of the cluster, as this host resolves it; none if it has no dot.
func (x *explanation) outside(ctx context.Context, name string) (ends []explain.End) {
	_, host, _ := strings.Cut(name, "/")
	if !strings.Contains(host, ".") || len(x.cluster.Agents) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // the name is not known, which the caller reports
	}
	for _, a := range addrs {
		end := explain.Resolve(x.nodes, a.Unmap().String(), "")[0]
		same := func(o explain.End) bool { return o.Addr.Is4() == end.Addr.Is4() }
		if !slices.ContainsFunc(ends, same) {
			ends = append(ends, end)
		}
	}
	return ends
}

// destination finds the destination of a connection from a node: an end that the agents know, or a service.
func (x *explanation) destination(ctx context.Context, q query, client string) ([]explain.End, error) {
	ends, err := x.known(ctx, q.to, q.network)
	if err != nil {
		return nil, err
	}
	if len(ends) > 0 && ends[0].Kind != explain.OutsideEnd {
		return ends, x.addBackends(ctx, q, ends)
	}
	service, err := x.service(ctx, q, client)
	if err != nil || len(service) > 0 {
		return service, err
	}
	return x.resolve(ctx, q.to, q.network)
}

// known returns the ends that the agents know by a name, and addresses; none: the name is another one. A pod in its node's
// network is the node.
func (x *explanation) known(ctx context.Context, name, network string) ([]explain.End, error) {
	ends := explain.Resolve(x.nodes, name, network)
	if len(ends) == 0 { // the name of a node has no namespace
		_, plain, _ := strings.Cut(name, "/")
		ends = explain.Resolve(x.nodes, plain, network)
	}
	if len(ends) > 0 {
		return ends, nil
	}
	node, err := x.hostNetwork(ctx, name)
	if err != nil || node == "" {
		return nil, err
	}
	return explain.Resolve(x.nodes, node, network), nil
}

// resolve finds an end by its name: one that the agents know, a VM, or a name outside.
func (x *explanation) resolve(ctx context.Context, name, network string) ([]explain.End, error) {
	ends, err := x.known(ctx, name, network)
	if err != nil || len(ends) > 0 {
		return ends, err
	}
	pod, err := x.vmPod(ctx, name)
	if err != nil {
		return nil, err
	}
	if pod != "" {
		ends = explain.Resolve(x.nodes, pod, network)
	}
	if len(ends) == 0 {
		ends = x.outside(ctx, name)
	}
	if len(ends) > 0 {
		return ends, nil
	}
	if known := explain.Names(x.nodes); slices.Contains(known, name) {
		return nil, model.Errorf(model.CodeInvalidConf, "see the annotation k8s.v1.cni.cncf.io/network-status of the pod",
			"pod %s has no interface in network %q", name, network)
	}
	hint := "weft explain knows pods whose network weft's agents set up, nodes, and addresses"
	if near := cni.Nearest(name, explain.Names(x.nodes)); near != "" {
		hint = "did you mean " + near + "?"
	}
	if len(x.silent) > 0 {
		hint += "; " + fmt.Sprint(len(x.silent)) + " agents did not answer"
	}
	return nil, model.Errorf(model.CodeInvalidConf, hint, "%q is neither a pod nor a node that the agents of %s know",
		name, strings.Join(slices.Sorted(maps.Keys(x.nodes)), ", "))
}
