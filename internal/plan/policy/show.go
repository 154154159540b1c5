// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// View is the policies and rules for a pod.
type View struct {
	Pod model.PodRef `json:"pod"`
	// Local: the pod is on this node, which enforces its policies.
	Local      bool        `json:"here"`
	Interfaces []Interface `json:"interfaces"`
	// Note is why there are no rules, if no policy exists.
	Note string `json:"note,omitempty"`
}

// Interface is the policies and rules for an endpoint.
type Interface struct {
	Pod  model.PodRef `json:"pod"`
	Node string       `json:"node,omitempty"`
	// Network is empty for the cluster's network, else "namespace/name" of a NetworkAttachment.
	Network string `json:"network,omitempty"`
	IfName  string `json:"ifName"`
	// HostLink is the node's link at which policies are enforced, if it is on the node.
	HostLink string `json:"hostLink,omitempty"`
	// Device is the PCI address if Point is PointDevice.
	Device string       `json:"device,omitempty"`
	Addrs  []netip.Addr `json:"addrs,omitempty"`
	// Point is where policies are enforced; empty for a pod of another node.
	Point   model.PolicyPoint `json:"point,omitempty"`
	Ingress DirectionView     `json:"ingress"`
	Egress  DirectionView     `json:"egress"`
}

// DirectionView is the rules for packets in one direction.
type DirectionView struct {
	// Isolated: a NetworkPolicy or MultiNetworkPolicy selects the pod, and packets that no rule accepts are denied.
	Isolated bool              `json:"isolated"`
	Selected []model.PolicyKey `json:"selected,omitempty"`
	Chain    string            `json:"chain,omitempty"`
	Rules    []RuleView        `json:"rules,omitempty"`
}

// RuleView is one rule of the kernel, in order of evaluation.
type RuleView struct {
	Policy model.PolicyKey `json:"policy,omitzero"`
	// Merged are the rule's policies, if several are merged.
	Merged []model.PolicyKey `json:"together,omitempty"`
	Rule   int               `json:"rule"`
	Text   string            `json:"text"`
	// Sets are the numbers of elements of the rule's sets.
	Sets map[string]int `json:"sets,omitempty"`
}

func (x *explainer) show(ref model.PodRef) (View, error) {
	p := x.cluster.pods.pod(ref.Namespace, ref.Name)
	if p == nil || p.identity == nil && p.locals == 0 {
		return View{}, model.Errorf(model.CodeInvalidConf, "run kubectl get pods -A", "pod %s is not known", ref)
	}
	v := View{Pod: ref}
	for e := range x.endpoints.of(ref.Namespace, ref.Name) {
		v.Local = true
		v.Interfaces = append(v.Interfaces, x.interfaceView(e, e.table))
	}
	if !v.Local {
		e := &endpoint{WorkloadEndpoint: model.WorkloadEndpoint{Pod: ref, Addrs: p.status()}, pod: p}
		t, done := x.scratchTable(e)
		one := x.interfaceView(e, t)
		one.Point = "" // known on its own node only
		v.Interfaces = append(v.Interfaces, one)
		done()
	}
	slices.SortFunc(v.Interfaces, func(a, b Interface) int {
		return cmp.Or(strings.Compare(a.Network, b.Network), strings.Compare(a.IfName, b.IfName))
	})
	return v, nil
}

func (x *explainer) interfaceView(e *endpoint, t *table) Interface {
	return Interface{
		Pod: e.Pod, Node: e.Node, Network: e.Network, IfName: e.IfName, HostLink: e.PolicyLink(), Device: e.PolicyDevice(),
		Addrs: e.Addrs, Point: e.Point(),
		Ingress: x.directionView(e, t, ingress), Egress: x.directionView(e, t, egress),
	}
}

func (x *explainer) directionView(e *endpoint, t *table, dir direction) DirectionView {
	if e.chains[dir] == nil {
		return DirectionView{}
	}
	j := DirectionView{Chain: e.chains[dir].name}
	if e.pod == nil {
		j.Isolated = true
	} else {
		c := x.cluster.combination(e.subject(), dir)
		j.Isolated, j.Selected = c.isolates(), c.selected()
	}
	seen := map[string]bool{} // a rule about all families is in the chains of each
	j.Rules = slices.DeleteFunc(x.ruleViews(t, j.Chain), func(r RuleView) bool {
		id := fmt.Sprint(r.Policy, r.Rule, r.Text)
		was := seen[id]
		seen[id] = true
		return was && r.Merged == nil
	})
	return j
}

// ruleViews returns the rules of policies in a chain and in those that it jumps to.
func (x *explainer) ruleViews(t *table, name string) []RuleView {
	var out []RuleView
	for _, r := range t.chains[name].rules {
		if r.from != (model.PolicyKey{}) || r.merged != nil {
			one := RuleView{Policy: r.from, Merged: r.merged, Rule: r.number, Text: r.text().Text}
			for _, s := range r.sets() {
				if one.Sets == nil {
					one.Sets = map[string]int{}
				}
				one.Sets[s.name] = len(t.fullSet(t.sets[s.name]).Elements)
			}
			out = append(out, one)
			continue
		}
		if r.to != nil && r.to.denies == nil {
			out = append(out, x.ruleViews(t, r.to.name)...)
		}
	}
	return out
}
