// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// filters are the flags that select flows, in the order in which they are set: --not is about the next one.
type filters struct {
	filter flow.Filter
	source *agents.Source
	not    bool
	pods   *pods // nil: not needed
	// workloads and labels decide; past are flows of pods that may be gone, so that no selector of labels is wrong.
	workloads, labels, past bool
	// policies are the names of all policies; nil: they are not known.
	policies []string
}

// flags adds them.
func (f *filters) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	for _, field := range flow.EndFields() {
		short := map[flow.Field]string{flow.FieldNamespace: "n", flow.FieldLabel: "l"}[field]
		if field != flow.FieldNode { // --node is the agent to ask
			fs.VarP(&condition{f, field, flow.Either}, string(field), short, endHelp(field)+" at either end")
		}
		fs.Var(&condition{f, field, flow.From}, "from-"+string(field), endHelp(field)+" at the source")
		fs.Var(&condition{f, field, flow.To}, "to-"+string(field), endHelp(field)+" at the destination")
	}
	for field, help := range map[flow.Field]string{
		flow.FieldVerdict:  "`VERDICT`: allowed, denied or dropped",
		flow.FieldKind:     "`KIND` of event: new, update, end, tracked, denied or dropped",
		flow.FieldProtocol: "`PROTOCOL`: tcp, udp, sctp, icmp, icmpv6, or the number of another one",
		flow.FieldTCPState: "`STATE` of a TCP connection as the kernel tracks it: syn-sent, syn-recv, established, fin-wait, " +
			"close-wait, last-ack, time-wait or close, which is a reset; with --follow also when a connection gets into it",
		flow.FieldReason: "`REASON` of a drop as the kernel names it, or a part of it, such as IP_RPFILTER or csum",
		flow.FieldPolicy: "`NAMESPACE/NAME` of a policy that decided, with * for any characters",
	} {
		fs.Var(&condition{f, field, flow.Either}, string(field), help)
	}
	for _, family := range []string{"4", "6"} {
		fs.VarPF(&fixed{f, flow.FieldFamily, family}, "ipv"+family, family, "only IPv"+family).NoOptDefVal = "true"
	}
	fs.VarPF(&negation{f}, "not", "", "reverse the next filter: leave out what it selects").NoOptDefVal = "true"
	for _, side := range []string{"from-", "to-"} {
		complete.Flag(cmd, side+string(flow.FieldPod), f.source.Pods)
		complete.Flag(cmd, side+string(flow.FieldNode), f.source.Nodes)
	}
	complete.Flag(cmd, string(flow.FieldPod), f.source.Pods)
	complete.Flag(cmd, string(flow.FieldReason), complete.Words(flow.DropReasons()...))
}

func endHelp(field flow.Field) string {
	switch field {
	case flow.FieldPod:
		return "`POD`, namespace/name with * for any characters,"
	case flow.FieldVM:
		return "`VM`, namespace/name with *,"
	case flow.FieldWorkload:
		return "`WORKLOAD` of a pod, such as a Deployment or StatefulSet, namespace/name with *,"
	case flow.FieldService:
		return "`SERVICE`, namespace/name with *,"
	case flow.FieldNamespace:
		return "`NAMESPACE` of a pod, VM or Service, with *,"
	case flow.FieldLabel:
		return "`SELECTOR` of a pod's labels, for example app=web,tier!=db,"
	case flow.FieldIP:
		return "`ADDRESS` or prefix"
	case flow.FieldPort:
		return "`PORT` or range"
	case flow.FieldNode:
		return "`NODE`, or pods and VMs on it,"
	case flow.FieldNetwork:
		return "`NETWORK` of a pod's or VM's interface, namespace/name or cluster,"
	}
	return string(field)
}

// add adds a condition, which --not before it reverses.
func (f *filters) add(field flow.Field, side flow.Side, value string) error {
	values := []string{value}
	if field != flow.FieldLabel && field != flow.FieldReason {
		values = strings.Split(value, ",")
	}
	for _, v := range values {
		switch field {
		case flow.FieldReason: // agents do not check it: those of another version may report others
			if err := checkReason(v); err != nil {
				return err
			}
		case flow.FieldPod, flow.FieldVM, flow.FieldService, flow.FieldWorkload:
			if v != "" && v != "*" && !strings.Contains(v, "/") {
				v = cmp.Or(f.source.Namespace(), "default") + "/" + v
			}
		}
		if err := f.filter.Add(field, side, f.not, v); err != nil {
			return err
		}
	}
	f.not = false
	return nil
}

// check returns an error about --not at the end.
func (f *filters) check() error {
	if f.not {
		return ui.Misusef("put it before the filter, as in --not --port 53", "--not: no filter follows")
	}
	return nil
}

// checkLabels returns an error about a selector of labels that selects no pod of those that are known.
func (f *filters) checkLabels(ctx context.Context, d *flow.Directory) error {
	if !f.labels {
		return nil
	}
	all := f.pods.labelSets(ctx)
	for s := range d.Labels() {
		all = append(all, s.Map())
	}
	for _, c := range f.filter.Conditions() {
		if c.Field != flow.FieldLabel || len(all) == 0 {
			continue
		}
		if err := checkSelectors(c.Values, all); err != nil {
			return err
		}
	}
	return nil
}

// nearest returns an error about a name in the filter that no node knows, with the nearest known one.
func (f *filters) nearest(ctx context.Context, d *flow.Directory, follow bool) error {
	if !follow && !f.past {
		if err := f.checkLabels(ctx, d); err != nil {
			return err
		}
	}
	known := known(d)
	if f.workloads {
		known[flow.FieldWorkload] = f.pods.names()
	}
	if f.policies != nil {
		known[flow.FieldPolicy] = f.policies
	}
	for _, c := range f.filter.Conditions() {
		names, named := known[c.Field]
		if !named {
			continue
		}
		for _, v := range c.Values {
			if strings.ContainsAny(v, "*?[") || slices.Contains(names, v) {
				continue
			}
			hint := similar(v, names)
			if c.Field == flow.FieldPolicy {
				return model.Errorf(model.CodeInvalidConf, hint, "--policy %q: the cluster has no such policy", v)
			}
			return model.Errorf(model.CodeInvalidConf, hint, "%s %q is not known to the agents", c.Field, v)
		}
	}
	return nil
}

// policyNames returns the names of all policies as filters have them; nil if the user may not list them.
func policyNames(ctx context.Context, objects store.Objects) ([]string, error) {
	names := map[string]bool{}
	for _, kind := range calico.AllPolicyKinds() {
		err := store.Each(ctx, objects, kind, func(o store.Object) {
			if p, err := calico.AnyPolicy(o); err == nil {
				names[strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")] = true
			}
		})
		switch {
		case errors.Is(err, store.ErrForbidden):
			return nil, nil
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return nil, fmt.Errorf("names of policies: %w", err)
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(names))...), nil // none is known, too
}

// known returns the names that a directory has, by the fields of filters.
func known(d *flow.Directory) map[flow.Field][]string {
	sets := map[flow.Field]map[string]bool{
		flow.FieldPod: {}, flow.FieldVM: {}, flow.FieldNode: {}, flow.FieldNamespace: {},
		flow.FieldNetwork: {flow.ClusterNetwork: true},
	}
	for id := range d.Identities() {
		namespace, _, _ := strings.Cut(id.Name, "/")
		switch id.Kind {
		case flow.PodEnd:
			sets[flow.FieldPod][id.Name] = true
		case flow.VMEnd:
			sets[flow.FieldVM][id.Name], sets[flow.FieldPod][id.Pod] = true, true
		case flow.NodeEnd:
			sets[flow.FieldNode][id.Name] = true
			continue
		case flow.ServiceEnd:
			if sets[flow.FieldService] == nil {
				sets[flow.FieldService] = map[string]bool{}
			}
			sets[flow.FieldService][id.Name] = true
		}
		sets[flow.FieldNamespace][namespace] = true
		if id.Network != "" {
			sets[flow.FieldNetwork][id.Network] = true
		}
	}
	out := map[flow.Field][]string{}
	for field, names := range sets {
		out[field] = slices.Sorted(maps.Keys(names))
	}
	return out
}

// condition is a flag of one field.
type condition struct {
	filters *filters
	field   flow.Field
	side    flow.Side
}

var _ pflag.Value = &condition{}

func (c *condition) String() string     { return "" }
func (c *condition) Type() string       { return "filter" }
func (c *condition) Set(v string) error { return c.filters.add(c.field, c.side, v) }

// fixed is a flag that stands for one value.
type fixed struct {
	filters *filters
	field   flow.Field
	value   string
}

func (f *fixed) String() string   { return "" }
func (f *fixed) Type() string     { return "bool" }
func (f *fixed) Set(string) error { return f.filters.add(f.field, flow.Either, f.value) }

// negation is --not.
type negation struct{ filters *filters }

func (n *negation) String() string { return "" }
func (n *negation) Type() string   { return "bool" }
func (n *negation) Set(string) error {
	n.filters.not = !n.filters.not
	return nil
}
