// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// View is what policies say of a pod.
type View struct {
	Pod model.PodRef `json:"pod"`
	// Here: the pod is on this node, which judges it.
	Here       bool        `json:"here"`
	Interfaces []Interface `json:"interfaces"`
	// Note says why there is nothing more to say, where no policy exists.
	Note string `json:"note,omitempty"`
}

// Interface is what they say of an interface.
type Interface struct {
	Pod  model.PodRef `json:"pod"`
	Node string       `json:"node,omitempty"`
	// Network is empty for the cluster's network, else "namespace/name" of a NetworkAttachment.
	Network string `json:"network,omitempty"`
	IfName  string `json:"ifName"`
	// HostLink is the node's link at which policies are enforced, where they are there.
	HostLink string `json:"hostLink,omitempty"`
	// Device is the PCI address where Point is PointDevice.
	Device string       `json:"device,omitempty"`
	Addrs  []netip.Addr `json:"addrs,omitempty"`
	// Point is where policies are enforced; empty for a pod of another node, which knows.
	Point   model.PolicyPoint `json:"point,omitempty"`
	Ingress Judged            `json:"ingress"`
	Egress  Judged            `json:"egress"`
}

// Judged is what is asked of packets in one direction.
type Judged struct {
	// Isolated: some NetworkPolicy or MultiNetworkPolicy selects the pod, and what no rule accepts is denied.
	Isolated bool              `json:"isolated"`
	Selected []model.PolicyKey `json:"selected,omitempty"`
	Chain    string            `json:"chain,omitempty"`
	Rules    []Ruling          `json:"rules,omitempty"`
}

// Ruling is one rule of the kernel, in the order in which they are asked.
type Ruling struct {
	Policy model.PolicyKey `json:"policy,omitzero"`
	// Together are the policies whose rule it is, where many are written together.
	Together []model.PolicyKey `json:"together,omitempty"`
	Rule     int               `json:"rule"`
	Text     string            `json:"text"`
	// Sets are how many elements the sets have that the rule asks.
	Sets map[string]int `json:"sets,omitempty"`
}

func (x *explainer) show(ref model.PodRef) (View, error) {
	p := x.cluster.pod(ref.Namespace, ref.Name)
	if p == nil || p.identity == nil && p.locals == 0 {
		return View{}, model.Faultf(model.CodeInvalidConf, "look for it with kubectl get pods -A", "pod %s is not known", ref)
	}
	v := View{Pod: ref}
	for e := range x.endpoints.of(ref.Namespace, ref.Name) {
		v.Here = true
		v.Interfaces = append(v.Interfaces, x.interfaceView(e, e.table))
	}
	if !v.Here {
		e := &endpoint{WorkloadEndpoint: model.WorkloadEndpoint{Pod: ref, Addrs: p.status()}, pod: p}
		t, done := x.trial(e)
		one := x.interfaceView(e, t)
		one.Point = "" // its own node knows
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
		Ingress: x.judged(e, t, ingress), Egress: x.judged(e, t, egress),
	}
}

func (x *explainer) judged(e *endpoint, t *table, dir direction) Judged {
	if e.chains[dir] == nil {
		return Judged{}
	}
	j := Judged{Chain: e.chains[dir].name}
	if e.pod == nil {
		j.Isolated = true
	} else {
		c := x.cluster.combination(e.subject(), dir)
		j.Isolated, j.Selected = len(c.plain) > 0, c.selected()
	}
	j.Rules = x.rulings(t, j.Chain)
	return j
}

// rulings are the rules of policies in a chain and in those that it leads to.
func (x *explainer) rulings(t *table, name string) []Ruling {
	var out []Ruling
	for _, r := range t.chains[name].rules {
		if r.from != (model.PolicyKey{}) || r.together != nil {
			one := Ruling{Policy: r.from, Together: r.together, Rule: r.number, Text: r.text().Text}
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
			out = append(out, x.rulings(t, r.to.name)...)
		}
	}
	return out
}
