// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/observe"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// policyFlags are the flags of all policy commands.
type policyFlags struct {
	source              agents.Source
	stateDir, namespace string
}

func newPolicyCmd(env Env) *cobra.Command {
	f := policyFlags{source: agents.Source{Env: env}}
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show network policies, and which of them allows or denies a connection",
		Long: `Queries this node's agent, which answers from the policies that it has compiled and enforces in the kernel. The agent
of each node knows all policies and all pods, so it answers for pods of other nodes, too. With --kubeconfig, --context
or --dir, and as kubectl weft, it queries an agent of that cluster, with --node that of the node; counters are then those
of the agent's node.`,
		Example: "  weft policy show shop/db\n" +
			"  weft policy why shop/web shop/db:5432",
	}
	fs := cmd.PersistentFlags()
	fs.StringVar(&f.stateDir, "state-dir", f.source.Env.Variable(ui.StateDirVariable, meshStateDir), "state `DIR` of the agent")
	fs.StringVarP(
		&f.namespace,
		"namespace",
		"n",
		"",
		"`NAMESPACE` of pods without one (default: the kubeconfig's, or default)",
	)
	f.source.RemoteFlags(cmd, fs)
	f.source.NodeFlag(cmd, fs, "`NAME` of a node: query its agent")
	agents.ExcludeStateDir(cmd)
	cmd.AddCommand(newPolicyShowCmd(env, &f), newPolicyWhyCmd(env, &f), observe.NewTryCmd(env, &f.source))
	return cmd
}

// query queries the agent and prints the response.
func (f *policyFlags) query(
	cmd *cobra.Command, env Env, output *printer.Format, what string, values url.Values, into any, text func(io.Writer) error,
) error {
	var err error
	if f.remote(cmd) {
		err = f.ask(cmd.Context(), policy.NewRequest(what, values), into)
	} else {
		err = policy.Request(cmd.Context(), adminapi.InStateDir(f.stateDir), what, values, into)
	}
	if err != nil {
		return err
	}
	if output.Document() {
		return output.Print(env.Stdout, into)
	}
	return text(env.Stdout)
}

// remote reports whether agents of a cluster are asked, and not this node's: its agent wins over a cluster that only the
// environment names, as on a node of a lab.
func (f *policyFlags) remote(cmd *cobra.Command) bool {
	here := cmd.Flags().Changed("state-dir") || f.source.Env.Variable(ui.StateDirVariable, "") != ""
	return f.source.Remote() || !here && (f.source.Env.Kubectl || f.source.Named())
}

// maxPolicyAgents is how many agents are asked that do not answer.
const maxPolicyAgents = 3

// setNamespace chooses the namespace of pods without one.
func (f *policyFlags) setNamespace(cmd *cobra.Command) {
	if f.namespace == "" {
		f.namespace = "default"
		if f.remote(cmd) {
			f.namespace = f.source.Namespace()
		}
	}
}

// ask asks the agents of a cluster, one after another, until one answers.
func (f *policyFlags) ask(ctx context.Context, q adminapi.Request, into any) error {
	c, err := f.source.Open(ctx)
	if err != nil {
		return err
	}
	var last error
	q.Timeout = askTimeout
	for _, a := range c.Agents[:min(len(c.Agents), maxPolicyAgents)] {
		last = a.Do(ctx, q, into)
		var answer *model.Error
		if last == nil || errors.As(last, &answer) && answer.Code != model.CodeIO && answer.Code != model.CodeTryAgain {
			return last
		}
	}
	return last
}

func newPolicyShowCmd(env Env, f *policyFlags) *cobra.Command {
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "show [POD]",
		Short: "Show all policies and their denied packets, or the policies of a pod",
		Long: `Without a pod: all policies, the parts of them that weft does not support, whether they select no pods of the
cluster, this node's host endpoints with their policies in the order of evaluation, and how many packets they
denied on this node. With a pod (namespace/name): for each of its interfaces and directions the policies that
select it, and the nftables rules in the order of evaluation, with the sizes of their sets.`,
		Example: "  weft policy show\n" +
			"  weft policy show shop/db",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: complete.Args(f.source.Pods),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.setNamespace(cmd)
			if len(args) == 0 {
				var s policy.Summary
				return f.query(cmd, env, output, "summary", nil, &s, func(w io.Writer) error { return summaryText(w, output, s) })
			}
			pod, err := f.pod(args[0])
			if err != nil {
				return err
			}
			var v compiled.View
			return f.query(
				cmd,
				env,
				output,
				"show",
				url.Values{"namespace": {pod.Namespace}, "name": {pod.Name}},
				&v,
				func(w io.Writer) error {
					if output.Is(printer.Name) {
						return output.Tables(w, selecting(v))
					}
					viewText(w, v)
					return nil
				},
			)
		},
	}
	output = printer.Objects(cmd.Flags(), false)
	return cmd
}

func newPolicyWhyCmd(env Env, f *policyFlags) *cobra.Command {
	var network string
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "why FROM TO[:PORT[/PROTOCOL]]",
		Short: "Show which policy, rule and set element allows or denies a connection, on both sides",
		Long: `FROM and TO are pods (namespace/name) or addresses; write an IPv6 address with a port in brackets. PROTOCOL is tcp (the
default), udp or sctp; PORT is a number, or the name of a port of the pod TO. Without a port it evaluates traffic that
has none, such as ping. The exit code is 0 if the connection is allowed, and 1 if it is denied in an address family
that both sides have, or if that is not known: by which interfaces a packet passes another node decides which of
Calico's host endpoints it meets. weft explain asks the nodes.`,
		Example: "  weft policy why shop/web shop/db:5432\n  weft policy why shop/web shop/db:postgres\n  weft policy why shop/web 192.0.2.7:53/udp\n  weft policy why 198.51.100.1 '[fd00::7]:443'",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.setNamespace(cmd)
			q := url.Values{"network": {network}}
			from, err := f.peer(args[0])
			if err != nil {
				return err
			}
			to, port, protocol, err := f.target(args[1])
			if err != nil {
				return err
			}
			q.Set("from", from)
			q.Set("to", to)
			q.Set("protocol", protocol)
			q.Set("port", port)
			var all []compiled.Answer
			err = f.query(cmd, env, output, "why", q, &all, func(w io.Writer) error {
				whyText(w, args[0], args[1], all)
				return nil
			})
			if err == nil && slices.ContainsFunc(all, func(a compiled.Answer) bool { return !a.Allowed }) {
				err = ui.Exit(ui.Bad)
			}
			return err
		},
	}
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	cmd.Flags().StringVar(&network, "network", "",
		"network of the addresses, a `NAMESPACE/NAME` (default: the cluster's network)")
	cmd.ValidArgsFunction = complete.Args(f.source.Pods, f.source.Pods)
	return cmd
}

// pod parses "namespace/name" or "name".
func (f *policyFlags) pod(s string) (model.PodRef, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		namespace, name = f.namespace, s
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return model.PodRef{}, ui.UsageError(
			model.Errorf(model.CodeInvalidConf, "for example shop/web", "%q is not a pod", s),
		)
	}
	if err := cmp.Or(model.CheckName("namespace", namespace), model.CheckName("pod", name)); err != nil {
		return model.PodRef{}, ui.UsageError(err)
	}
	return model.PodRef{Namespace: namespace, Name: name}, nil
}

// peer parses a pod or an address.
func (f *policyFlags) peer(s string) (string, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return a.String(), nil
	}
	p, err := f.pod(s)
	return p.String(), err
}

// isPortName reports whether a string is a valid name of a container port (IANA_SVC_NAME): at most 15 lower case letters,
// digits and hyphens, at least one of them a letter.
func isPortName(s string) bool {
	const letters, others = "abcdefghijklmnopqrstuvwxyz", "0123456789-"
	return len(s) <= 15 && strings.Trim(s, letters+others) == "" && strings.ContainsAny(s, letters) &&
		!strings.HasPrefix(s, "-") && !strings.HasSuffix(s, "-") && !strings.Contains(s, "--")
}

// target parses TO[:PORT[/PROTOCOL]].
func (f *policyFlags) target(s string) (peer, port, protocol string, err error) {
	bad := func(hint, format string, args ...any) error {
		return ui.UsageError(model.Errorf(model.CodeInvalidConf, hint, format, args...))
	}
	rest := s
	if i := strings.LastIndex(s, "/"); i > strings.LastIndex(s, ":") && strings.Contains(s, ":") &&
		!strings.HasPrefix(s[i:], "/]") {
		if _, e := netip.ParseAddr(s); e != nil {
			rest, protocol = s[:i], strings.ToUpper(s[i+1:])
		}
	}
	if _, e := netip.ParseAddr(rest); e != nil { // not an IPv6 address, which has colons
		if i := strings.LastIndex(rest, ":"); i >= 0 && !strings.HasSuffix(rest, "]") {
			rest, port = rest[:i], rest[i+1:]
		}
	}
	if port != "" {
		n, e := strconv.ParseUint(port, 10, 16)
		switch named := isPortName(port); {
		case !named && (e != nil || n == 0):
			return "", "", "", bad("a number from 1 to 65535, or the name of a port of the pod",
				"%q: port %q cannot be used", s, port)
		case !named && protocol == "":
			protocol = "TCP"
		}
	}
	if protocol != "" && !slices.Contains([]string{"TCP", "UDP", "SCTP"}, protocol) {
		return "", "", "", bad("tcp, udp or sctp", "%q: protocol %q is not known", s, strings.ToLower(protocol))
	}
	peer, err = f.peer(rest)
	return peer, port, protocol, err
}
