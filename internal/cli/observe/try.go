// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// NewTryCmd returns the command weft policy try. The flags of its group choose the cluster.
func NewTryCmd(env ui.Env, source *agents.Source) *cobra.Command {
	t := try{flags: flags{source: source}}
	cmd := &cobra.Command{
		Use:   "try {FILE | --staged}",
		Short: "Show which connections policies would change that are not in the cluster yet",
		Long: `Reads NetworkPolicy, ClusterNetworkPolicy and MultiNetworkPolicy objects from a file, and evaluates the connections of
the cluster with and without them: those that its nodes track now, that agents have kept (observe.level), and with --duration
those that begin until then. It prints which of them would be denied, or allowed, and by which policies. A policy of the
same name as one in the cluster replaces it. Nothing is changed. The exit code is 1 if a connection would be denied.

Calico's staged policies count as if they were enforced: those in the file, and with --staged all that are in the cluster.
With stagedAction: Delete the policy of the name is left out, with Ignore nothing happens.

Keys of -o json: a list of {from, to, protocol, port, network, allowed, direction, policies, flows}.`,
		Example: "  weft policy try deny-all.yaml\n" +
			"  weft policy try --duration 10m policies.yaml\n" +
			"  weft policy try --staged",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case t.staged && len(args) > 0:
				return ui.Misusef("leave out one of them", "--staged and the file %q are two sources of policies", args[0])
			case !t.staged && len(args) != 1:
				return ui.Misusef("name a file with policies, or add --staged", "try reads one file, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return t.run(cmd.Context(), env, args...) },
	}
	cmd.Flags().BoolVar(&t.staged, "staged", false, "evaluate Calico's staged policies of the cluster instead of a file's")
	cmd.Flags().DurationVar(&t.flags.span, "duration", 0, "evaluate also the connections that begin within a `DURATION`")
	t.flags.output = printer.Objects(cmd.Flags(), false)
	return cmd
}

type try struct {
	flags  flags
	staged bool
}

func (t *try) run(ctx context.Context, env ui.Env, files ...string) (err error) {
	if t.flags.span < 0 {
		return ui.Misusef("for example --duration 10m", "--duration %s is negative", t.flags.span)
	}
	var policies []calico.Staged
	if !t.staged {
		if policies, err = readPolicies(files[0]); err != nil {
			return err
		}
	}
	c, err := t.flags.source.Open(ctx)
	if err != nil {
		return err
	}
	if c.Objects == nil {
		return model.Errorf(model.CodeInvalidConf, "name a lab with --dir, or a cluster with --kubeconfig",
			"the cluster's policies are not known to one agent")
	}
	if t.staged {
		if policies, err = calico.ListStaged(ctx, c.Objects); err != nil {
			return err
		}
		if len(policies) == 0 {
			return model.Errorf(model.CodeInvalidConf, "name a file with policies", "--staged: the cluster has no staged policy")
		}
		for _, s := range policies {
			for _, wrong := range s.Policy.Errors {
				if _, err := fmt.Fprintf(env.Stderr, "%s: %s (that rule allows nothing)\n", s.Policy.PolicyKey, wrong); err != nil {
					return err
				}
			}
		}
	}
	seen := map[between]*counted{}
	m := newMerger(env.Stderr)
	m.known = func(*flow.Directory) error { return nil }
	m.emit = func(r flow.Record) error {
		ofNode := r.From.Kind == flow.NodeEnd || r.To.Kind == flow.NodeEnd                   // to which host endpoints are of interest
		ownPod := r.From.Kind == flow.NodeEnd && r.HasEndpoint() && r.From.Node == r.To.Node // always reached
		if r.Kind != flow.End && r.Kind != flow.Update && (ofNode || r.HasEndpoint()) && !ownPod && !seenTwice(r, m.answered) {
			count(seen, r)
		}
		return nil
	}
	q := question{follow: t.flags.span > 0, tracked: true}
	limited, cancel := context.WithCancel(ctx)
	if t.flags.span > 0 {
		limited, cancel = context.WithTimeout(ctx, t.flags.span)
	}
	defer cancel()
	if err := m.run(limited, c, q); err != nil {
		return err
	}
	changes, err := tried(ctx, c.Objects, m.directory, policies, seen)
	if err != nil {
		return err
	}
	return t.print(env.Stdout, changes)
}

func (t *try) print(w io.Writer, changes []*Change) error {
	var err error
	if t.flags.output.Document() {
		err = t.flags.output.Print(w, changes)
	} else {
		rows := printer.Table{Header: []string{"WOULD BE", "FROM", "TO", "PORT", "FLOWS", "BY"}, Keys: 4}
		for _, c := range changes {
			verdict := "denied"
			switch {
			case c.Unknown != "":
				verdict = "unknown"
			case c.Allowed:
				verdict = "allowed"
			}
			var names []string
			for _, p := range c.Policies {
				names = append(names, p.String())
			}
			port := c.Protocol
			if c.Port != 0 {
				port = fmt.Sprintf("%d/%s", c.Port, c.Protocol)
			}
			rows.Row("", verdict, c.From, c.To, port, fmt.Sprint(c.Flows), strings.TrimSpace(c.Direction+" "+strings.Join(names, ", ")+c.Unknown))
		}
		err = t.flags.output.Tables(w, rows)
	}
	if err == nil && slices.ContainsFunc(changes, func(c *Change) bool { return !c.Allowed }) {
		return ui.Exit(ui.Bad)
	}
	return err
}

// Change is a kind of connection that the policies would allow or deny, other than now.
type Change struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port,omitempty"`
	Network  string `json:"network,omitempty"`
	Allowed  bool   `json:"allowed"`
	// Direction and Policies are the side that would deny it, and what isolates the pod there.
	Direction string            `json:"direction,omitempty"`
	Policies  []model.PolicyKey `json:"policies,omitempty"`
	Flows     int               `json:"flows"`
	// Unknown is why it may be denied, of a connection that is not known to be: then it is not Allowed either.
	Unknown string `json:"unknown,omitempty"`
}

// readPolicies reads the policies of a file.
func readPolicies(file string) (out []calico.Staged, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, ui.FileError("name a file with policies", "file", file, err)
	}
	objects, err := dir.Decode(file, b)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		s, ok := calico.Staged{}, true
		switch {
		case calico.IsStaged(o.Key):
			s, ok, err = calico.StagedPolicy(o)
		case isPolicy(o):
			s.Policy, err = calico.AnyPolicy(o)
		default:
			return nil, model.Errorf(model.CodeInvalidConf,
				"it may have NetworkPolicy, ClusterNetworkPolicy and MultiNetworkPolicy objects, and Calico's policies",
				"%s: %s is no policy", file, o.Key)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(s.Policy.Errors) > 0 {
			return nil, model.Errorf(model.CodeInvalidConf, "", "%s: %s: %s", file, o.Key, strings.Join(s.Policy.Errors, "; "))
		}
		if ok {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "write a NetworkPolicy into it", "%s: no policy", file)
	}
	return out, nil
}

func isPolicy(o store.Object) bool {
	return slices.ContainsFunc(calico.AllPolicyKinds(), func(k store.Kind) bool { return o.Key.Of(k) })
}

// between are the ends of connections, whatever the source's port.
type between struct {
	from, to netip.Addr
	network  string
	protocol string
	port     uint16
}

// counted is the first of several connections between the same ends.
type counted struct {
	flow.Record
	n int
}

// count adds a connection.
func count(seen map[between]*counted, r flow.Record) {
	k := between{r.From.Addr, r.To.Addr, cmp.Or(r.From.Network, r.To.Network), r.Protocol, r.To.Port}
	if c := seen[k]; c != nil {
		c.n++
		return
	}
	seen[k] = &counted{r, 1}
}

// tried returns which connections the policies would change.
func tried(
	ctx context.Context, objects store.Objects, d *flow.Directory, policies []calico.Staged, seen map[between]*counted,
) ([]*Change, error) {
	now, next := policy.New(policy.Config{}), policy.New(policy.Config{})
	for _, x := range []*policy.Index{now, next} {
		if err := fill(ctx, x, objects, d, policies); err != nil {
			return nil, err
		}
	}
	for _, s := range policies {
		if s.Delete {
			next.DelPolicy(s.Policy.PolicyKey)
		} else {
			next.SetPolicy(s.Policy)
		}
	}
	var all []*Change
	for k, r := range seen {
		if !r.HasEndpoint() && !next.Calico().HasHosts() {
			continue
		}
		q := policy.Query{
			From: policy.ConnectionEnd{Addr: k.from}, To: policy.ConnectionEnd{Addr: k.to}, Network: k.network,
		}
		if slices.Contains([]string{"tcp", "udp", "sctp"}, r.Protocol) {
			q.Protocol, q.Port = model.Protocol(strings.ToUpper(r.Protocol)), k.port
		}
		before, err := now.Why(q)
		if err != nil {
			return nil, err
		}
		after, err := next.Why(q)
		if err != nil {
			return nil, err
		}
		if before[0].Allowed == after[0].Allowed {
			continue
		}
		c := &Change{
			From: name(r.From), To: name(r.To), Protocol: r.Protocol, Network: k.network, Allowed: after[0].Allowed,
			Flows: r.n, Unknown: strings.Join(after[0].Unknown, "; "),
		}
		if q.Protocol != "" {
			c.Port = k.port
		}
		for _, s := range after[0].Sides {
			if !s.Allowed {
				c.Direction, c.Policies = s.Direction, s.Decided
				break
			}
		}
		all = append(all, c)
	}
	return collect(all), nil
}

// collect joins the changes of pods of one name, and sorts them: what would be denied comes first.
func collect(all []*Change) []*Change {
	out := []*Change{}
	for _, c := range all {
		same := func(o *Change) bool {
			return o.From == c.From && o.To == c.To && o.Protocol == c.Protocol && o.Port == c.Port && o.Network == c.Network &&
				o.Allowed == c.Allowed
		}
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].Flows += c.Flows
			continue
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *Change) int {
		if a.Allowed != b.Allowed {
			if a.Allowed {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Port, b.Port),
			cmp.Compare(a.Protocol, b.Protocol))
	})
	return out
}

// fill adds the cluster's pods, namespaces and policies, with the addresses that agents have reported, and what those
// policies and the tried ones use.
func fill(ctx context.Context, x *policy.Index, objects store.Objects, d *flow.Directory, tried []calico.Staged) error {
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add := func(kind store.Kind, visit func(store.Object)) {
		if err := store.Each(ctx, objects, kind, visit); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", kind.Kind, err))
		}
	}
	add(store.Namespaces(), func(o store.Object) {
		n, err := o.Namespace()
		x.SetNamespace(n)
		keep(err)
	})
	add(store.Pods(), func(o store.Object) {
		p, err := o.Pod()
		x.SetPod(p)
		keep(err)
	})
	var policies []model.Policy
	for _, kind := range calico.AllPolicyKinds() {
		add(kind, func(o store.Object) {
			if calico.Derived(o.Key) {
				return
			}
			p, err := calico.AnyPolicy(o)
			if err == nil {
				x.SetPolicy(p)
			}
			policies = append(policies, p)
			keep(err)
		})
	}
	for _, s := range tried {
		policies = append(policies, s.Policy)
	}
	invalid, err := calico.Fill(ctx, objects, policies, x.Calico())
	for _, i := range append(invalid, err) {
		keep(i)
	}
	if x.Calico().HasHosts() {
		add(store.Nodes(), func(o store.Object) {
			n, err := o.Node()
			if err == nil {
				x.SetNode(n)
			}
			keep(err)
		})
	}
	for h := range d.Holders() {
		pod := h.Identity.Name
		if h.Identity.Kind == flow.VMEnd {
			pod = h.Identity.Pod
		}
		namespace, name, _ := strings.Cut(pod, "/")
		x.SetEndpoint(model.WorkloadEndpoint{
			Attachment: model.AttachmentKey{Network: h.Network, ContainerID: pod, IfName: h.Addr.String()},
			Pod:        model.PodRef{Namespace: namespace, Name: name}, Node: h.Identity.Node, Network: h.Network,
			IfName: h.Addr.String(), Addrs: []netip.Addr{h.Addr},
		})
	}
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}
