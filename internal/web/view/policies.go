// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
)

// PoliciesInput is what is known of policies.
type PoliciesInput struct {
	Policies   []model.Policy
	Pods       []model.Pod
	Namespaces []model.Namespace
	// Endpoints are the pods' interfaces on further networks.
	Endpoints []model.WorkloadEndpoint
	// Invalid are objects that cannot be read at all, with the reason.
	Invalid []Row
	// Summaries are the agents'.
	Summaries []policy.Summary
	// Silent has why agents did not answer, by node.
	Silent map[string]string
}

// Policies are the policies of a cluster.
type Policies struct {
	Policies []PolicyRow `json:"policies"`
	// Denied are packets that no policy of Policies has denied: of one that was deleted, or of another reason.
	Denied []DeniedRow `json:"denied"`
	// Open are pods that no policy selects, of all Pods.
	Open int `json:"open"`
	Pods int `json:"pods"`
	// NotEnforced are why an agent does not enforce them, by node.
	NotEnforced []Row `json:"notEnforced"`
}

// PolicyRow is a policy.
type PolicyRow struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // namespace/name, or name
	Tier string `json:"tier,omitempty"`
	// Networks are those of a MultiNetworkPolicy.
	Networks []string `json:"networks,omitempty"`
	// Selector says which pods, and Selects lists some of them of Pods.
	Selector string   `json:"selector"`
	Pods     int      `json:"pods"`
	Selects  []string `json:"selects"`
	// Hosts are the host endpoints that it selects: "NAME of NODE at INTERFACE", of all agents that answered.
	Hosts []string `json:"hosts"`
	// Ingress and Egress are the rules as text; nil: the direction is not affected.
	Ingress []string `json:"ingress"`
	Egress  []string `json:"egress"`
	// Denied packets, of all agents that answered. Those that several policies denied together count for each of them.
	Denied uint64 `json:"denied"`
	// Faults are why it is not enforced in full. A fault of one agent is said once.
	Faults []string `json:"faults"`
}

// DeniedRow are packets.
type DeniedRow struct {
	By      string `json:"by"`
	Packets uint64 `json:"packets"`
}

// maxSelected limits the names of a policy's pods.
const maxSelected = 12

// NewPolicies returns the view of policies.
func NewPolicies(in PoliciesInput) Policies {
	v := Policies{Policies: []PolicyRow{}, Denied: []DeniedRow{}, NotEnforced: []Row{}}
	labels := map[string]map[string]string{}
	for _, n := range in.Namespaces {
		labels[n.Name] = n.Labels
	}
	networks := map[[2]string][]string{}
	for _, e := range in.Endpoints {
		pod := [2]string{e.Pod.Namespace, e.Pod.Name}
		networks[pod] = append(networks[pod], e.Network)
	}
	selected := map[string]bool{}
	denied, faults := bySummaries(in.Summaries)
	hosts := hostsOf(in.Summaries)
	claimed := map[string]bool{}
	for _, p := range in.Policies {
		row := PolicyRow{
			Kind: string(p.Kind), Name: keyName(p.PolicyKey), Tier: string(p.Tier), Selector: peerText(p.Subject),
			Networks: p.Networks, Selects: []string{}, Hosts: append([]string{}, hosts[p.PolicyKey]...), Ingress: rules(p.Ingress), Egress: rules(p.Egress), Faults: []string{},
		}
		switch {
		case p.Order != nil:
			row.Tier += fmt.Sprintf(", order %v", *p.Order)
		case p.Tier != "" && !p.Kind.Calico():
			row.Tier += fmt.Sprintf(", priority %d", p.Priority)
		}
		for _, pod := range in.Pods {
			if pod.HostNetwork || pod.Phase == "Succeeded" || pod.Phase == "Failed" || !matches(p.Subject, pod, labels) {
				continue
			}
			if p.Kind == model.KindMultiNetworkPolicy && !onNetworks(p.Networks, pod, networks) {
				continue
			}
			row.Pods++
			selected[pod.Namespace+"/"+pod.Name] = true
			if len(row.Selects) < maxSelected {
				row.Selects = append(row.Selects, pod.Namespace+"/"+pod.Name)
			}
		}
		row.Faults = append(append(row.Faults, p.Errors...), faults[p.PolicyKey]...)
		slices.Sort(row.Faults)
		row.Faults = slices.Compact(row.Faults)
		switch hosts := p.Kind == model.KindGlobalNetworkPolicy; {
		case row.Pods+len(row.Hosts) > 0:
		case hosts && len(in.Silent) > 0:
			row.Faults = append(row.Faults, "it selects no pods; whether it selects host endpoints is not known, because not all agents have answered")
		case hosts:
			row.Faults = append(row.Faults, "it selects no pods and no host endpoints, so it has no effect")
		default:
			row.Faults = append(row.Faults, "it selects no pods, so it has no effect")
		}
		for by, n := range denied {
			if deniedBy(by, p.PolicyKey) {
				row.Denied += n
				claimed[by] = true
			}
		}
		v.Policies = append(v.Policies, row)
	}
	for _, i := range in.Invalid {
		v.Policies = append(v.Policies, PolicyRow{
			Kind: "invalid", Name: i.Name, Selects: []string{}, Hosts: []string{}, Faults: []string{i.Text},
		})
	}
	slices.SortFunc(v.Policies, func(a, b PolicyRow) int { // what is wrong first
		return cmp.Or(cmp.Compare(min(len(b.Faults), 1), min(len(a.Faults), 1)), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name))
	})
	for by, n := range denied {
		if claimed[by] {
			continue
		}
		v.Denied = append(v.Denied, DeniedRow{by, n})
	}
	slices.SortFunc(v.Denied, func(a, b DeniedRow) int { return cmp.Compare(a.By, b.By) })
	for _, pod := range in.Pods {
		if !pod.HostNetwork && pod.Phase != "Succeeded" && pod.Phase != "Failed" {
			v.Pods++
			if !selected[pod.Namespace+"/"+pod.Name] {
				v.Open++
			}
		}
	}
	for _, s := range in.Summaries {
		if !s.Known {
			v.NotEnforced = append(v.NotEnforced, Row{s.Node, "the agent does not know all policies and pods yet"})
		}
	}
	for node, why := range in.Silent {
		v.NotEnforced = append(v.NotEnforced, Row{node, why})
	}
	slices.SortFunc(v.NotEnforced, func(a, b Row) int { return compareNames(a.Name, b.Name) })
	return v
}

// hostsOf returns the host endpoints at which policies act, sorted.
func hostsOf(all []policy.Summary) map[model.PolicyKey][]string {
	out := map[model.PolicyKey][]string{}
	for _, s := range all {
		for _, h := range s.HostEndpoints {
			at := h.Name + " of " + h.Node + " at " + h.Interface
			if h.Interface == model.AllInterfaces {
				at = h.Name + " of " + h.Node + " at all interfaces"
			}
			for _, stage := range h.Stages {
				for _, k := range stage.Policies {
					if !slices.Contains(out[k], at) {
						out[k] = append(out[k], at)
					}
				}
			}
		}
	}
	for _, names := range out {
		slices.SortFunc(names, compareNames)
	}
	return out
}

// bySummaries returns the packets that agents denied, and the unsupported parts that they report, by policy.
func bySummaries(all []policy.Summary) (denied map[string]uint64, faults map[model.PolicyKey][]string) {
	denied, faults = map[string]uint64{}, map[model.PolicyKey][]string{}
	for _, s := range all {
		for _, d := range s.Denied {
			if d.Packets > 0 {
				denied[d.By] += d.Packets
			}
		}
		for _, k := range s.Policies {
			if k.Unsupported != "" {
				faults[k.PolicyKey] = append(faults[k.PolicyKey], k.Unsupported)
			}
		}
	}
	return denied, faults
}

// deniedBy reports whether a policy is among those that denied packets together: "NetworkPolicy shop/a,shop/b ingress".
func deniedBy(by string, p model.PolicyKey) bool {
	names, of := strings.CutPrefix(by, string(p.Kind)+" ")
	names, _, _ = strings.Cut(names, " ")
	return of && slices.Contains(strings.Split(names, ","), keyName(p))
}

func keyName(k model.PolicyKey) string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

func matches(p model.PodPeer, pod model.Pod, namespaces map[string]map[string]string) bool {
	if p.Namespace != "" && p.Namespace != pod.Namespace {
		return false
	}
	if p.Endpoints != nil {
		return p.Endpoints.Matches(model.PodLabels{Pod: pod, Namespace: namespaces[pod.Namespace]})
	}
	return (p.Namespace != "" || p.Namespaces.Matches(namespaces[pod.Namespace])) && p.Pods.Matches(pod.Labels)
}

func peerText(p model.PodPeer) string {
	if p.Endpoints != nil {
		text := p.Endpoints.String()
		if p.Namespace != "" {
			text += " of namespace " + p.Namespace
		}
		return text
	}
	pods := "all pods"
	if !p.Pods.Empty() {
		pods = "pods " + p.Pods.String()
	}
	switch {
	case p.Namespace != "":
		return pods + " of namespace " + p.Namespace
	case p.Namespaces.Empty():
		return pods + " of all namespaces"
	}
	return pods + " of namespaces " + p.Namespaces.String()
}

// rules returns the rules of a direction, nil if it is not affected.
func rules(d model.PolicyDirection) []string {
	if !d.On {
		return nil
	}
	out := []string{}
	for _, r := range d.Rules {
		out = append(out, ruleText(r))
	}
	return out
}

func ruleText(r model.PolicyRule) string {
	var peers, ports []string
	for _, p := range r.Peers {
		switch {
		case p.Pods != nil:
			peers = append(peers, peerText(*p.Pods))
		case p.Block != nil:
			text := p.Block.CIDR.String()
			for i, e := range p.Block.Except {
				text += map[bool]string{true: " except ", false: ", "}[i == 0] + e.String()
			}
			peers = append(peers, text)
		case p.Nodes != nil:
			peers = append(peers, "nodes "+p.Nodes.String())
		}
	}
	for _, p := range r.Ports {
		ports = append(ports, portText(p))
	}
	text := strings.ToLower(string(r.Action)) + " "
	if r.Conditions != nil {
		return text + conditionsText(*r.Conditions)
	}
	switch {
	case r.AnyPeer:
		text += "everything"
	case len(peers) == 0:
		text += "nothing"
	default:
		text += strings.Join(peers, "; ")
	}
	if !r.AnyPort {
		text += ", " + "ports " + cmp.Or(strings.Join(ports, ", "), "none")
	}
	return text
}

func portText(p model.PolicyPort) string {
	protocol := strings.ToLower(string(p.Protocol))
	if protocol != "" {
		protocol = "/" + protocol
	}
	switch {
	case p.Name != "":
		return p.Name + protocol
	case p.First == 0 && p.Last == 0:
		return "all of " + strings.TrimPrefix(protocol, "/")
	case p.First == p.Last || p.Last == 0:
		return fmt.Sprintf("%d%s", p.First, protocol)
	}
	return fmt.Sprintf("%d-%d%s", p.First, p.Last, protocol)
}
