// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// policyFlags are those of all verbs about policies.
type policyFlags struct{ stateDir, namespace, output string }

func newPolicyCmd(env Env) *cobra.Command {
	var f policyFlags
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show what network policies say, and which of them decides",
		Long: `Asks this node's agent about network policies: it answers from what it has compiled and written into the kernel.
The agent of any node knows all policies and all pods; of a pod of another node it says what that node's agent does.`,
	}
	fs := cmd.PersistentFlags()
	fs.StringVar(&f.stateDir, "state-dir", meshStateDir, "the agent's state directory")
	fs.StringVarP(&f.namespace, "namespace", "n", "default", "the namespace of pods that are named without one")
	fs.StringVarP(&f.output, "output", "o", "text", "text or json")
	cmd.AddCommand(newPolicyShowCmd(env, &f), newPolicyWhyCmd(env, &f))
	return cmd
}

// ask asks the agent and prints the answer.
func (f *policyFlags) ask(
	cmd *cobra.Command, env Env, what string, query url.Values, into any, text func(io.Writer),
) error {
	if f.output != "text" && f.output != "json" {
		return ui.UsageError(model.Faultf(model.CodeInvalidConf, "give text or json", "-o %q is no output format", f.output))
	}
	if err := policy.Ask(cmd.Context(), adminapi.InStateDir(f.stateDir), what, query, into); err != nil {
		return err
	}
	if f.output == "json" {
		e := json.NewEncoder(env.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(into)
	}
	text(env.Stdout)
	return nil
}

func newPolicyShowCmd(env Env, f *policyFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "show [POD]",
		Short: "Show all policies and what they denied here, or what they say of a pod",
		Long: `Without a pod: all policies, what of them could not be understood, whether they select no pods of the
cluster, and how many packets they denied on this node. With one (namespace/name): for each of its interfaces and
directions the policies that select it, and the kernel's rules in the order in which they are asked, each with the
sets that it asks and how many elements they have.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				var s policy.Summary
				return f.ask(cmd, env, "summary", nil, &s, func(w io.Writer) { summaryText(w, s) })
			}
			pod, err := f.pod(args[0])
			if err != nil {
				return err
			}
			var v compiled.View
			return f.ask(cmd, env, "show", url.Values{"namespace": {pod.Namespace}, "name": {pod.Name}}, &v, func(w io.Writer) {
				viewText(w, v)
			})
		},
	}
}

func newPolicyWhyCmd(env Env, f *policyFlags) *cobra.Command {
	var network string
	cmd := &cobra.Command{
		Use:   "why FROM TO[:PORT[/PROTOCOL]]",
		Short: "Say which policy, rule and set element decides about a connection, on both sides",
		Long: `FROM and TO are pods (namespace/name) or addresses; an IPv6 address before a port stands in brackets.
PROTOCOL is tcp, udp or sctp, tcp where none is named; PORT is a number, or the name of a port of the pod TO.
Without a port the connection is one that has none, as ping's. It exits with 0 when the connection is allowed, and
with 1 when it is denied in a family that both have.`,
		Example: "  weft policy why shop/web shop/db:5432\n  weft policy why shop/web shop/db:postgres\n  weft policy why shop/web 192.0.2.7:53/udp\n  weft policy why 198.51.100.1 '[fd00::7]:443'",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"network": {network}}
			from, err := f.party(args[0])
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
			err = f.ask(cmd, env, "why", q, &all, func(w io.Writer) { whyText(w, args[0], args[1], all) })
			if err == nil && slices.ContainsFunc(all, func(a compiled.Answer) bool { return !a.Allowed }) {
				err = ui.Exit(ui.Bad)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&network, "network", "",
		"the network whose addresses are meant, as namespace/name; empty: the cluster's")
	return cmd
}

// pod reads "namespace/name" or "name".
func (f *policyFlags) pod(s string) (model.PodRef, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		namespace, name = f.namespace, s
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return model.PodRef{}, ui.UsageError(model.Faultf(model.CodeInvalidConf, "write namespace/name", "%q is no pod", s))
	}
	return model.PodRef{Namespace: namespace, Name: name}, nil
}

// party reads a pod or an address.
func (f *policyFlags) party(s string) (string, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return a.String(), nil
	}
	p, err := f.pod(s)
	return p.String(), err
}

// portName tells whether a word may be the name of a container's port (IANA_SVC_NAME): at most 15 small letters, digits
// and hyphens, of which one is a letter.
func portName(s string) bool {
	const letters, others = "abcdefghijklmnopqrstuvwxyz", "0123456789-"
	return len(s) <= 15 && strings.Trim(s, letters+others) == "" && strings.ContainsAny(s, letters) &&
		!strings.HasPrefix(s, "-") && !strings.HasSuffix(s, "-") && !strings.Contains(s, "--")
}

// target reads what stands behind FROM.
func (f *policyFlags) target(s string) (party, port, protocol string, err error) {
	bad := func(hint, format string, args ...any) error {
		return ui.UsageError(model.Faultf(model.CodeInvalidConf, hint, format, args...))
	}
	rest := s
	if i := strings.LastIndex(s, "/"); i > strings.LastIndex(s, ":") && strings.Contains(s, ":") &&
		!strings.HasPrefix(s[i:], "/]") {
		if _, e := netip.ParseAddr(s); e != nil {
			rest, protocol = s[:i], strings.ToUpper(s[i+1:])
		}
	}
	if _, e := netip.ParseAddr(rest); e != nil { // an IPv6 address has colons of its own
		if i := strings.LastIndex(rest, ":"); i >= 0 && !strings.HasSuffix(rest, "]") {
			rest, port = rest[:i], rest[i+1:]
		}
	}
	if port != "" {
		n, e := strconv.ParseUint(port, 10, 16)
		switch named := portName(port); {
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
	party, err = f.party(rest)
	return party, port, protocol, err
}
