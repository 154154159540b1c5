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

// HostEndpointView is a host endpoint of this node at one of its interfaces, with its policies.
type HostEndpointView struct {
	Name string `json:"name"`
	Node string `json:"node"`
	// Interface is empty if the host endpoint is in force at none; "*": at all that have none of their own.
	Interface string `json:"interface,omitempty"`
	// Addrs are the addresses by which rules select it.
	Addrs []netip.Addr `json:"expectedIPs,omitempty"`
	// Automatic: the controllers' configuration creates it, and there need not be an object.
	Automatic bool `json:"automatic,omitempty"`
	// Stages are empty if the host endpoint is not in force.
	Stages []HostStageView `json:"stages"`
	// Faults are why it is not in force, or only in part.
	Faults []string `json:"faults,omitempty"`
}

// HostStageView is the policies of one stage and direction at a host endpoint.
type HostStageView struct {
	// Stage is local, forward, preDNAT or untracked.
	Stage     string `json:"stage"`
	Direction string `json:"direction"`
	// Policies are in order of evaluation.
	Policies []model.PolicyKey `json:"policies"`
	// Default is what becomes of a packet for which no rule decides.
	Default HostDefault `json:"default"`
	// Why says which tier or profile the default is of.
	Why string `json:"why"`
}

// HostDefault is what becomes of a packet for which no rule of a stage decides.
type HostDefault string

const (
	// DefaultAllow and DefaultDeny decide.
	DefaultAllow HostDefault = "Allow"
	DefaultDeny  HostDefault = "Deny"
	// DefaultNext leaves it to the next stage.
	DefaultNext HostDefault = "Next"
)

// HostEndpoints returns the host endpoints of this node at each interface, sorted by name, with those that are in force at
// none.
func (f CalicoFacts) HostEndpoints() []HostEndpointView {
	f.index.update()
	h := f.index.hosts
	out := []HostEndpointView{}
	for _, p := range h.placed {
		v := viewOf(p.HostEndpoint)
		v.Interface = cmp.Or(p.Interface, model.AllInterfaces)
		for _, s := range []stage{stageLocal, stageForward, stagePreDNAT, stageUntracked} {
			for _, dir := range []direction{ingress, egress} {
				c := h.cluster.hostCombination(p.HostEndpoint, s, dir)
				switch {
				case c.empty() && s != stageLocal:
				case s == stageUntracked && p.Interface == "":
					v.Faults = append(v.Faults, fmt.Sprintf("policies with doNotTrack have no effect on %s at all interfaces: %s; "+
						"write the interface into spec.interfaceName", dir, joined(c.selected())))
				default:
					v.Stages = append(v.Stages, stageView(s, dir, c, p.Allows))
				}
			}
		}
		out = append(out, v)
	}
	for _, e := range h.cluster.hosts {
		if e.Node != h.node || slices.ContainsFunc(out, func(v HostEndpointView) bool { return v.Name == e.Name }) {
			continue
		}
		v := viewOf(e)
		v.Faults = []string{"no interface of the node has an address of expectedIPs that no other host endpoint has"}
		if e.Interface != "" {
			p, _ := h.placedAt(strings.TrimSuffix(e.Interface, model.AllInterfaces))
			v.Faults = []string{fmt.Sprintf("interface %s is that of host endpoint %s, the first by name", e.Interface, p.Name)}
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b HostEndpointView) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Interface, b.Interface))
	})
	return out
}

func viewOf(h model.HostEndpoint) HostEndpointView {
	return HostEndpointView{Name: h.Name, Node: h.Node, Addrs: h.Addrs, Automatic: h.Automatic, Stages: []HostStageView{}}
}

func stageView(s stage, dir direction, c combination, allows bool) HostStageView {
	v := HostStageView{
		Stage: s.String(), Direction: dir.String(), Policies: append([]model.PolicyKey{}, c.selected()...),
	}
	end := slices.IndexFunc(c, func(t selectedTier) bool { return !t.pass })
	switch {
	case s == stagePreDNAT:
		v.Stage, v.Default, v.Why = "preDNAT", DefaultNext, "local or forward"
	case s == stageUntracked:
		v.Default, v.Why = DefaultNext, "preDNAT, local or forward"
	case end >= 0:
		v.Default, v.Why = DefaultDeny, "end of tier "+string(c[end].name)
	case s == stageForward:
		v.Default, v.Why = DefaultAllow, "forwarded"
	case allows:
		v.Default, v.Why = DefaultAllow, "profile"
	default:
		v.Default, v.Why = DefaultDeny, "no profile allows it"
	}
	return v
}

func joined(keys []model.PolicyKey) string {
	out := make([]string, 0, len(keys))
	for _, k := range keys {
		out = append(out, k.String())
	}
	return strings.Join(out, ", ")
}
