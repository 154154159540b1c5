// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Field is what a Condition compares.
type Field string

// The fields of an end.
const (
	FieldPod       Field = "pod"       // namespace/name, with * for any characters
	FieldVM        Field = "vm"        // namespace/name, with *
	FieldService   Field = "service"   // namespace/name, with *
	FieldNamespace Field = "namespace" // of a pod, VM or Service, with *
	FieldLabel     Field = "label"     // key=value, key!=value, key or !key, separated by commas
	FieldIP        Field = "ip"        // an address or a prefix
	FieldPort      Field = "port"      // a port or a range, 8000-8080
	FieldNode      Field = "node"      // where the pod or VM is, or the node itself; with *
	FieldNetwork   Field = "network"   // namespace/name of a network, or "cluster"; with *
	FieldWorkload  Field = "workload"  // namespace/name of what a pod belongs to, such as a Deployment; with *
)

// The fields of a flow.
const (
	FieldVerdict  Field = "verdict"
	FieldKind     Field = "kind"
	FieldProtocol Field = "protocol"
	FieldReason   Field = "reason" // any part of it, in upper or lower case
	FieldPolicy   Field = "policy" // namespace/name of a policy that decided, with *
	FieldFamily   Field = "family" // 4 or 6
	FieldTCPState Field = "tcp-state"
)

// ClusterNetwork is the name of the cluster's network in a filter.
const ClusterNetwork = "cluster"

// EndFields returns the fields of an end.
func EndFields() []Field {
	return []Field{
		FieldPod, FieldVM, FieldNamespace, FieldLabel, FieldWorkload, FieldService, FieldIP, FieldPort, FieldNode, FieldNetwork,
	}
}

// Side is the end that a Condition is about.
type Side string

// The sides.
const (
	Either Side = ""
	From   Side = "from"
	To     Side = "to" // the destination, before or after DNAT
)

// Condition is true for flows of which the field is one of the values, or with Not, none of them.
type Condition struct {
	Field  Field    `json:"field"`
	Side   Side     `json:"side,omitempty"`
	Not    bool     `json:"not,omitempty"`
	Values []string `json:"values"`
}

// Labels returns the labels of a pod (namespace/name) of which a flow has none; nil: it is not known.
type Labels func(pod string) map[string]string

// Workloads returns the workload of a pod (both namespace/name); "": it has none, or it is not known.
type Workloads func(pod string) string

// Filter selects flows for which all conditions are true.
type Filter struct {
	conditions []Condition
	workloads  Workloads
}

// SetWorkloads sets what decides FieldWorkload; without it no flow has a workload.
func (f *Filter) SetWorkloads(w Workloads) { f.workloads = w }

// pods are what decides conditions that a record does not.
type pods struct {
	labels    Labels
	workloads Workloads
}

// Add adds a value to the condition of a field and a side; several values are alternatives. An error says what is
// expected.
func (f *Filter) Add(field Field, side Side, not bool, value string) error {
	if err := check(field, value); err != nil {
		return err
	}
	i := slices.IndexFunc(f.conditions, func(c Condition) bool {
		return c.Field == field && c.Side == side && c.Not == not
	})
	if i < 0 {
		f.conditions = append(f.conditions, Condition{Field: field, Side: side, Not: not})
		i = len(f.conditions) - 1
	}
	f.conditions[i].Values = append(f.conditions[i].Values, value)
	return nil
}

// Local returns the conditions that a node can decide that does not know the names of other nodes' endpoints: what they
// exclude need not be sent.
func (f *Filter) Local() (out []Condition) {
	for _, c := range f.conditions {
		switch c.Field {
		case FieldVerdict, FieldKind, FieldProtocol, FieldReason, FieldPolicy, FieldFamily, FieldTCPState, FieldIP, FieldPort:
			out = append(out, c)
		}
	}
	return out
}

// NewFilter returns a filter with conditions, as another program has sent them.
func NewFilter(conditions []Condition) (f Filter, err error) {
	for _, c := range conditions {
		for _, v := range c.Values {
			if err := f.Add(c.Field, c.Side, c.Not, v); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// Conditions are its conditions.
func (f *Filter) Conditions() []Condition { return f.conditions }

// Uses reports whether a condition is about a field.
func (f *Filter) Uses(field Field) bool {
	return slices.ContainsFunc(f.conditions, func(c Condition) bool { return c.Field == field })
}

// Match reports whether it selects a flow.
func (f *Filter) Match(r Record, labels Labels) bool {
	for _, c := range f.conditions {
		if slices.ContainsFunc(c.Values, func(v string) bool { return c.is(r, v, pods{labels, f.workloads}) }) == c.Not {
			return false
		}
	}
	return true
}

// check returns an error about a value that no flow can have.
func check(field Field, value string) error {
	invalid := func(hint string) error {
		return model.Errorf(model.CodeInvalidConf, hint, "%s %q is not valid", field, value)
	}
	oneOf := func(all ...string) error {
		if slices.Contains(all, value) {
			return nil
		}
		return invalid(model.OneOf(all))
	}
	switch field {
	case FieldIP:
		if _, err := prefix(value); err != nil {
			return invalid("for example 10.42.1.2, or 10.42.0.0/16")
		}
	case FieldPort:
		if _, _, ok := ports(value); !ok {
			return invalid("for example 443, or 8000-8080")
		}
	case FieldVerdict:
		return oneOf(string(Allowed), string(DeniedVerdict), string(DroppedVerdict))
	case FieldKind:
		return oneOf(string(New), string(Update), string(End), string(Tracked), string(Denied), string(Dropped))
	case FieldFamily:
		return oneOf("4", "6")
	case FieldTCPState:
		return oneOf(States()...)
	case FieldProtocol:
		if n, err := strconv.ParseUint(value, 10, 8); err == nil && Protocol(uint8(n)) == value {
			return nil
		}
		return oneOf("tcp", "udp", "sctp", "icmp", "icmpv6")
	case FieldLabel:
		if _, ok := selector(value); !ok {
			return invalid("for example app=web,tier!=db")
		}
	case FieldReason:
		if value == "" {
			return invalid("for example IP_RPFILTER")
		}
	default: // names
		if _, err := path.Match(value, ""); err != nil || value == "" {
			return invalid("a name, with * for any characters")
		}
	}
	return nil
}

// is reports whether a field of a flow has a value.
func (c Condition) is(r Record, value string, known pods) bool {
	switch c.Field {
	case FieldVerdict:
		return string(r.Verdict) == value
	case FieldKind:
		return string(r.Kind) == value
	case FieldProtocol:
		return r.Protocol == value
	case FieldTCPState:
		return r.State == value
	case FieldReason:
		return strings.Contains(strings.ToLower(r.Reason), strings.ToLower(value))
	case FieldFamily:
		return r.From.Addr.IsValid() && r.From.Addr.Is4() == (value == "4")
	case FieldPolicy:
		return slices.ContainsFunc(r.Decisions, func(d Decision) bool {
			return slices.ContainsFunc(d.Policies, func(k model.PolicyKey) bool {
				return glob(value, strings.TrimPrefix(k.Namespace+"/"+k.Name, "/"))
			})
		})
	}
	if c.Side != To && endIs(c.Field, r.From, value, known) {
		return true
	}
	return c.Side != From && (endIs(c.Field, r.To, value, known) || r.Via != nil && endIs(c.Field, *r.Via, value, known))
}

// endIs reports whether a field of an end has a value.
func endIs(field Field, e Endpoint, value string, known pods) bool {
	switch field {
	case FieldPod:
		return e.Kind == PodEnd && glob(value, e.Name) || e.Kind == VMEnd && glob(value, e.Pod)
	case FieldVM:
		return e.Kind == VMEnd && glob(value, e.Name)
	case FieldService:
		return e.Kind == ServiceEnd && glob(value, e.Name)
	case FieldNamespace:
		namespace, _, ok := strings.Cut(e.Name, "/")
		return ok && glob(value, namespace)
	case FieldNode:
		return e.Node != "" && glob(value, e.Node)
	case FieldNetwork:
		network := e.Network
		if network == "" && (e.Kind == PodEnd || e.Kind == VMEnd) {
			network = ClusterNetwork
		}
		return network != "" && glob(value, network)
	case FieldIP:
		p, err := prefix(value)
		return err == nil && p.Contains(e.Addr)
	case FieldPort:
		first, last, ok := ports(value)
		return ok && e.Port >= first && e.Port <= last && e.Port != 0
	case FieldLabel:
		return e.isPod() && e.selected(value, known.labels)
	case FieldWorkload:
		if !e.isPod() || known.workloads == nil {
			return false
		}
		workload := known.workloads(e.podName())
		return workload != "" && glob(value, workload)
	}
	return false
}

// selected reports whether a selector selects the pod by its labels, or if the flow has none, by those that are known of
// it otherwise.
func (e Endpoint) selected(by string, known Labels) bool {
	if e.Labels.Known() {
		return selects(by, e.Labels.get)
	}
	if known == nil {
		return false
	}
	labels := known(e.podName())
	return labels != nil && Selects(by, labels)
}

// isPod reports whether it is a pod, or a VM, which runs in one.
func (e Identity) isPod() bool { return e.Kind == PodEnd || e.Kind == VMEnd }

// glob reports whether a name matches, with * for any characters.
func glob(pattern, name string) bool {
	// path.Match's * does not match a slash; names have one at most, in the same place.
	if strings.Count(pattern, "/") != strings.Count(name, "/") {
		return pattern == "*"
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// prefix parses an address or a prefix.
func prefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// ports parses a port or a range.
func ports(s string) (first, last uint16, ok bool) {
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	a, err := strconv.ParseUint(low, 10, 16)
	b, err2 := strconv.ParseUint(high, 10, 16)
	return uint16(a), uint16(b), err == nil && err2 == nil && a > 0 && a <= b
}

// term is a part of a label selector.
type term struct {
	key, value string
	any        bool // the key is enough
	not        bool
}

// selector parses a label selector.
func selector(s string) (out []term, ok bool) {
	for part := range strings.SplitSeq(s, ",") {
		t := term{}
		key, value, equal := strings.Cut(part, "=")
		switch {
		case equal && strings.HasSuffix(key, "!"):
			t = term{key: strings.TrimSuffix(key, "!"), value: value, not: true}
		case equal:
			t = term{key: key, value: strings.TrimPrefix(value, "=")}
		default:
			t = term{key: strings.TrimPrefix(part, "!"), any: true, not: strings.HasPrefix(part, "!")}
		}
		if t.key == "" {
			return nil, false
		}
		out = append(out, t)
	}
	return out, true
}

// matches reports whether labels have what the term demands.
func (t term) matches(get func(key string) (string, bool)) bool {
	value, has := get(t.key)
	return (has && (t.any || value == t.value)) != t.not
}
