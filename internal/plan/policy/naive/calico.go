// SPDX-License-Identifier: Apache-2.0

package naive

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Calico is Calico's own objects.
type Calico struct {
	Tiers    []CalicoTier
	Policies []CalicoPolicy
	Sets     []CalicoSet
	Hosts    []CalicoHost
	// Interfaces are the addresses of the node's interfaces.
	Interfaces map[string][]netip.Addr
	// Inbound and Outbound are the ports that stay open at host endpoints.
	Inbound, Outbound []Failsafe
	// EndpointToHost is Drop where pods do not reach their node.
	EndpointToHost string
	// Accounts are the labels of service accounts, by "namespace/name".
	Accounts map[string]map[string]string
}

// CalicoTier is projectcalico.org/v3's Tier.
type CalicoTier struct {
	Name string
	Spec struct {
		Order         *float64 `json:"order,omitempty"`
		DefaultAction string   `json:"defaultAction,omitempty"`
	}
}

// CalicoSet is a NetworkSet, or without a namespace a GlobalNetworkSet.
type CalicoSet struct {
	Metadata Metadata
	Labels   map[string]string
	Nets     []string
	// Incomplete: it has prefixes that cannot be read.
	Incomplete bool
}

// CalicoPolicy is a NetworkPolicy of Calico's, or without a namespace a GlobalNetworkPolicy.
type CalicoPolicy struct {
	Metadata Metadata
	Spec     CalicoSpec
}

// CalicoSpec is a CalicoPolicy's.
type CalicoSpec struct {
	Tier                   string          `json:"tier,omitempty"`
	Order                  *float64        `json:"order,omitempty"`
	Selector               *CalicoSelector `json:"selector,omitempty"`
	NamespaceSelector      *CalicoSelector `json:"namespaceSelector,omitempty"`
	ServiceAccountSelector *CalicoSelector `json:"serviceAccountSelector,omitempty"`
	Types                  []string        `json:"types,omitempty"`
	Ingress                []CalicoRule    `json:"ingress,omitempty"`
	Egress                 []CalicoRule    `json:"egress,omitempty"`
	ApplyOnForward         bool            `json:"applyOnForward,omitempty"`
	PreDNAT                bool            `json:"preDNAT,omitempty"`
	DoNotTrack             bool            `json:"doNotTrack,omitempty"`
}

// CalicoRule is a rule.
type CalicoRule struct {
	Action      string      `json:"action"`
	IPVersion   int         `json:"ipVersion,omitempty"`
	Protocol    string      `json:"protocol,omitempty"`
	NotProtocol string      `json:"notProtocol,omitempty"`
	ICMP        *CalicoICMP `json:"icmp,omitempty"`
	NotICMP     *CalicoICMP `json:"notICMP,omitempty"`
	Source      CalicoEnd   `json:"source,omitzero"`
	Destination CalicoEnd   `json:"destination,omitzero"`
}

// CalicoICMP is a type of ICMP, and sometimes a code.
type CalicoICMP struct {
	Type int  `json:"type"`
	Code *int `json:"code,omitempty"`
}

// CalicoEnd is what a rule wants of one end.
type CalicoEnd struct {
	Nets              []string        `json:"nets,omitempty"`
	NotNets           []string        `json:"notNets,omitempty"`
	Selector          *CalicoSelector `json:"selector,omitempty"`
	NotSelector       *CalicoSelector `json:"notSelector,omitempty"`
	NamespaceSelector *CalicoSelector `json:"namespaceSelector,omitempty"`
	ServiceAccounts   *CalicoAccounts `json:"serviceAccounts,omitempty"`
	Ports             []any           `json:"ports,omitempty"` // a number, "first:last" or a name
	NotPorts          []any           `json:"notPorts,omitempty"`
}

// CalicoAccounts selects service accounts by name and by labels.
type CalicoAccounts struct {
	Names    []string        `json:"names,omitempty"`
	Selector *CalicoSelector `json:"selector,omitempty"`
}

// CalicoSelector is a selector as a tree: && and || of Parts, ! of one, or a comparison. Text is its text.
type CalicoSelector struct {
	Op           string
	Label, Value string
	Parts        []CalicoSelector
}

// MarshalText returns the selector in Calico's syntax.
func (s CalicoSelector) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns the selector in Calico's syntax.
func (s CalicoSelector) String() string {
	switch s.Op {
	case "&&", "||":
		var parts []string
		for _, p := range s.Parts {
			parts = append(parts, "("+p.String()+")")
		}
		return strings.Join(parts, " "+s.Op+" ")
	case "!":
		return "!(" + s.Parts[0].String() + ")"
	case "has":
		return "has(" + s.Label + ")"
	case "in", "not in":
		return s.Label + " " + s.Op + ` {"` + s.Value + `", "zz"}`
	case "all()", "global()":
		return s.Op
	}
	return s.Label + " " + s.Op + ` "` + s.Value + `"`
}

// selects evaluates the selector on labels that have the prefix; all is the value of all().
func (s *CalicoSelector) selects(labels map[string]string, prefix string, all bool) bool {
	if s == nil {
		return true
	}
	v, is := labels[prefix+s.Label]
	part := func(p CalicoSelector) bool { return p.selects(labels, prefix, all) }
	switch s.Op {
	case "&&":
		return !slices.ContainsFunc(s.Parts, func(p CalicoSelector) bool { return !part(p) })
	case "||":
		return slices.ContainsFunc(s.Parts, part)
	case "!":
		return !part(s.Parts[0])
	case "has":
		return is
	case "==", "in":
		return is && v == s.Value
	case "!=", "not in":
		return !is || v != s.Value
	case "contains":
		return is && strings.Contains(v, s.Value)
	case "starts with":
		return is && strings.HasPrefix(v, s.Value)
	case "ends with":
		return is && strings.HasSuffix(v, s.Value)
	case "global()":
		return labels["projectcalico.org/namespace"] == ""
	}
	return all
}

// podLabels are a pod's labels as Calico derives them.
func (w World) podLabels(p *Pod) map[string]string {
	out := maps.Clone(p.Labels)
	w.ofNamespace(out, p.Namespace)
	out["projectcalico.org/orchestrator"] = "k8s"
	if p.Account != "" {
		out["projectcalico.org/serviceaccount"], out["pcsa.projectcalico.org/name"] = p.Account, p.Account
		for k, v := range w.Calico.Accounts[p.Namespace+"/"+p.Account] {
			out["pcsa."+k] = v
		}
	}
	return out
}

func (w World) ofNamespace(out map[string]string, namespace string) {
	for k, v := range w.Namespaces[namespace] {
		out["pcns."+k] = v
	}
	out["projectcalico.org/namespace"], out["pcns.projectcalico.org/name"] = namespace, namespace
}

// mayTiered evaluates all kinds of policies of the cluster's network, tier by tier.
func (w World) mayTiered(way string, subject, peer party, p Packet) bool {
	type tier struct {
		name   string
		order  float64
		deny   bool
		rules  []func() string // of each policy in order: a decision, or nothing
		orders []float64
		names  []string
	}
	var tiers []*tier
	at := func(name string) *tier {
		for _, t := range tiers {
			if t.name == name {
				return t
			}
		}
		t := &tier{name: name}
		t.order, t.deny = w.tierOf(name)
		tiers = append(tiers, t)
		return t
	}
	add := func(name, policy string, order float64, rules func() string) {
		t := at(name)
		policy += "/" // as Calico, which compares NAME/NAMESPACE
		i := 0
		for i < len(t.orders) && (t.orders[i] < order || t.orders[i] == order && t.names[i] < policy) {
			i++
		}
		t.rules, t.orders = slices.Insert(t.rules, i, rules), slices.Insert(t.orders, i, order)
		t.names = slices.Insert(t.names, i, policy)
	}
	for _, c := range w.Cluster {
		if w.selected(c.Spec.Subject, subject) && len(map[string][]ClusterRule{"Ingress": c.Spec.Ingress, "Egress": c.Spec.Egress}[way]) > 0 {
			add(map[string]string{"Admin": "kube-admin", "Baseline": "kube-baseline"}[c.Spec.Tier], c.Metadata.Name,
				float64(c.Spec.Priority), func() string { return w.clusterDecision(c, way, peer, p) })
		}
	}
	for _, np := range w.Policies {
		if np.isolates(way, subject) {
			add("default", np.Metadata.Name, 1000, func() string { return w.networkDecision(np, way, peer, p) })
		}
	}
	for _, c := range w.Calico.Policies {
		if c.governs(way) && w.calicoSelects(c, subject.pod) && !c.Spec.PreDNAT && !c.Spec.DoNotTrack {
			order := 1e300
			if c.Spec.Order != nil {
				order = *c.Spec.Order
			}
			add(cmp.Or(c.Spec.Tier, "default"), c.Metadata.Name, order, func() string { return w.calicoDecision(c, way, p) })
		}
	}
	slices.SortFunc(tiers, func(a, b *tier) int { return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(a.name, b.name)) })
	for _, t := range tiers {
		answer := ""
		for _, decide := range t.rules {
			if answer = decide(); answer != "" {
				break
			}
		}
		switch {
		case answer == "Accept" || answer == "Allow":
			return true
		case answer == "Deny" || answer == "" && t.deny:
			return false
		}
	}
	return true
}

func (c CalicoPolicy) governs(way string) bool {
	if len(c.Spec.Types) > 0 {
		return slices.Contains(c.Spec.Types, way)
	}
	return way == "Egress" && len(c.Spec.Egress) > 0 || way == "Ingress" && (len(c.Spec.Ingress) > 0 || len(c.Spec.Egress) == 0)
}

func (w World) calicoSelects(c CalicoPolicy, p *Pod) bool {
	labels := w.podLabels(p)
	return (c.Metadata.Namespace == "" || c.Metadata.Namespace == p.Namespace) && c.selects(labels)
}

// selects evaluates the selectors of a policy itself. In a GlobalNetworkPolicy all() is not everything if there are others.
func (c CalicoPolicy) selects(labels map[string]string) bool {
	_, namespaced := labels["projectcalico.org/namespace"]
	_, account := labels["projectcalico.org/serviceaccount"]
	all, s := true, c.Spec
	if c.Metadata.Namespace != "" {
		account = true
	} else if s.NamespaceSelector != nil {
		all = namespaced
	} else if s.ServiceAccountSelector != nil {
		all = account
	}
	return s.Selector.selects(labels, "", all) && s.NamespaceSelector.selects(labels, "pcns.", namespaced) &&
		s.ServiceAccountSelector.selects(labels, "pcsa.", account)
}

func (w World) calicoDecision(c CalicoPolicy, way string, p Packet) string {
	for _, r := range map[string][]CalicoRule{"Ingress": c.Spec.Ingress, "Egress": c.Spec.Egress}[way] {
		if r = w.closed(c, r); r.Action != "Log" && r.speaksOf(p) && w.endMatches(c, r, r.Source, p.Src, p, 50000) &&
			w.endMatches(c, r, r.Destination, p.Dst, p, p.Port) {
			return r.Action
		}
	}
	return ""
}

// closed returns the rule with what it is while it selects sets with unknown prefixes.
func (w World) closed(c CalicoPolicy, r CalicoRule) CalicoRule {
	action := r.Action
	for _, e := range []*CalicoEnd{&r.Source, &r.Destination} {
		wanted, positive := e.wanted(c)
		negative := func(labels map[string]string) bool { return e.NotSelector.selects(labels, "", true) }
		switch {
		case positive && w.incomplete(wanted) && action != "Allow":
			e.Selector, e.NamespaceSelector, e.ServiceAccounts, e.NotSelector = nil, nil, nil, nil
			r.Action = "Deny"
		case !positive && e.NotSelector != nil && w.incomplete(negative):
			r.Action = map[string]string{"Allow": "Log", "Deny": "Deny", "Pass": "Deny", "Log": "Log"}[action]
		}
	}
	if action == "Log" {
		r.Action = action
	}
	return r
}

// incomplete reports whether a set with unknown prefixes has labels that are wanted.
func (w World) incomplete(wanted func(map[string]string) bool) bool {
	return slices.ContainsFunc(w.Calico.Sets, func(s CalicoSet) bool { return s.Incomplete && wanted(w.setLabels(s)) })
}

func (w World) setLabels(s CalicoSet) map[string]string {
	labels := maps.Clone(s.Labels)
	if s.Metadata.Namespace != "" {
		w.ofNamespace(labels, s.Metadata.Namespace)
	}
	return labels
}

// wanted returns which labels the end has, and false if those of any owner of an address, or of none, are right.
func (e *CalicoEnd) wanted(c CalicoPolicy) (func(map[string]string) bool, bool) {
	selecting := e.Selector != nil || e.NamespaceSelector != nil || e.ServiceAccounts != nil
	own := c.Metadata.Namespace != "" && e.NamespaceSelector == nil && (selecting || e.NotSelector != nil)
	return func(labels map[string]string) bool {
		namespace := labels["projectcalico.org/namespace"]
		if own && namespace != c.Metadata.Namespace {
			return false
		}
		if s := e.ServiceAccounts; s != nil && (len(s.Names) > 0 && !slices.Contains(s.Names, labels["pcsa.projectcalico.org/name"]) ||
			!s.Selector.selects(labels, "pcsa.", true)) {
			return false
		}
		return e.Selector.selects(labels, "", true) && e.NamespaceSelector.selects(labels, "pcns.", namespace != "") &&
			(e.NotSelector == nil || !e.NotSelector.selects(labels, "", true))
	}, selecting || own
}

// speaksOf evaluates the family and the protocol.
func (r CalicoRule) speaksOf(p Packet) bool {
	proto, echo := p.Proto, 8
	if proto == "ICMP" && p.Src.Is6() {
		proto, echo = "ICMPv6", 128
	}
	icmp := func(m *CalicoICMP) bool { return m.Type == echo && (m.Code == nil || *m.Code == 0) }
	return (r.IPVersion == 0 || (r.IPVersion == 6) == p.Src.Is6()) && (r.Protocol == "" || r.Protocol == proto) &&
		r.NotProtocol != proto && (r.ICMP == nil || icmp(r.ICMP)) && (r.NotICMP == nil || !icmp(r.NotICMP))
}

func (w World) endMatches(c CalicoPolicy, r CalicoRule, e CalicoEnd, a netip.Addr, p Packet, port int) bool {
	contains := func(nets []string) bool { return slices.ContainsFunc(nets, func(n string) bool { return in(n, a) }) }
	ofFamily := func(n string) bool { return netip.MustParsePrefix(n).Addr().Is6() == a.Is6() }
	if len(e.Nets) > 0 && !contains(e.Nets) || contains(e.NotNets) ||
		len(e.NotNets) > 0 && !slices.ContainsFunc(e.NotNets, ofFamily) {
		return false
	}
	wanted, selecting := e.wanted(c)
	switch {
	case selecting:
		if !w.anyIs(a, wanted) {
			return false
		}
	case e.NotSelector != nil && w.anyIs(a, func(labels map[string]string) bool { return e.NotSelector.selects(labels, "", true) }):
		return false
	default:
		wanted = func(map[string]string) bool { return true }
	}
	is := func(x any) bool {
		return w.portIs(x, a, p.Proto, port, wanted) || w.hostPortIs(x, a, p.Proto, port, wanted)
	}
	return (len(e.Ports) == 0 || slices.ContainsFunc(e.Ports, is)) && !slices.ContainsFunc(e.NotPorts, is)
}

// anyIs reports whether a pod, or a network set, with the address has labels that are wanted.
func (w World) anyIs(a netip.Addr, wanted func(map[string]string) bool) bool {
	if o := w.owner(a); o.pod != nil && o.network == "" && wanted(w.podLabels(o.pod)) {
		return true
	}
	for _, s := range w.Calico.Sets {
		labels := w.setLabels(s)
		if slices.ContainsFunc(s.Nets, func(n string) bool { return in(n, a) }) && wanted(labels) {
			return true
		}
	}
	for _, h := range w.Calico.Hosts {
		if slices.Contains(h.Spec.ExpectedIPs, a.String()) && wanted(h.Labels) {
			return true
		}
	}
	return false
}

func (w World) hostPortIs(x any, a netip.Addr, proto string, port int, wanted func(map[string]string) bool) bool {
	name, is := x.(string)
	return is && slices.ContainsFunc(w.Calico.Hosts, func(h CalicoHost) bool {
		return wanted(h.Labels) && slices.Contains(h.Spec.ExpectedIPs, a.String()) && slices.Contains(h.Spec.Ports, CalicoHostPort{name, proto, port})
	})
}

func (w World) portIs(x any, a netip.Addr, proto string, port int, wanted func(map[string]string) bool) bool {
	switch x := x.(type) {
	case int:
		return proto != "ICMP" && x == port
	case string:
		if first, last, is := strings.Cut(x, ":"); is {
			from, _ := strconv.Atoi(first)
			to, _ := strconv.Atoi(last)
			return proto != "ICMP" && from <= port && port <= to
		}
		o := w.owner(a)
		return o.pod != nil && o.network == "" && slices.Contains(o.pod.Ports, PodPort{x, proto, port}) && wanted(w.podLabels(o.pod))
	}
	return false
}
