// SPDX-License-Identifier: Apache-2.0

package naive

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// CalicoHost is projectcalico.org/v3's HostEndpoint.
type CalicoHost struct {
	Metadata Metadata
	Labels   map[string]string
	Spec     CalicoHostSpec
}

// CalicoHostSpec is a CalicoHost's.
type CalicoHostSpec struct {
	Node          string           `json:"node"`
	InterfaceName string           `json:"interfaceName,omitempty"`
	ExpectedIPs   []string         `json:"expectedIPs,omitempty"`
	Profiles      []string         `json:"profiles,omitempty"`
	Ports         []CalicoHostPort `json:"ports,omitempty"`
}

// CalicoHostPort is a named port of a host endpoint.
type CalicoHostPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
}

// Failsafe is a port that stays open at host endpoints; Proto as in Packet.
type Failsafe struct {
	Proto string
	Port  int
	Net   string
}

// HostPacket is the first packet of a connection at a node: In and Out are the interfaces where it comes in and leaves; none:
// a process of the node has sent it, or receives it. Translated is what it becomes by DNAT; Source is its source port.
type HostPacket struct {
	In, Out            string
	Packet, Translated Packet
}

// AtHost reports whether the host endpoints of a node let a packet pass. Links are the interfaces of the node's pods.
func (w World) AtHost(node string, links []string, p HostPacket) bool {
	if p.In != "" {
		decided := w.hostDecision(node, p.In, "Ingress", "untracked", p.Packet)
		if decided == "Allow" {
			p.Translated = p.Packet // what is not tracked is not translated either
		} else if decided == "" {
			decided = w.hostDecision(node, p.In, "Ingress", "preDNAT", p.Packet)
		}
		if decided == "Deny" {
			return false
		}
		switch {
		case p.Out != "":
			return (decided == "Allow" || w.hostDecision(node, p.In, "Ingress", "forward", p.Translated) != "Deny") &&
				w.hostDecision(node, p.Out, "Egress", "forward", p.Translated) != "Deny"
		case decided == "Allow":
			return true
		case slices.Contains(links, p.In):
			return w.Calico.EndpointToHost != "Drop"
		}
		return w.hostDecision(node, p.In, "Ingress", "local", p.Translated) != "Deny"
	}
	if decided := w.hostDecision(node, p.Out, "Egress", "untracked", p.Packet); decided != "" {
		return decided == "Allow"
	}
	return slices.Contains(links, p.Out) || w.hostDecision(node, p.Out, "Egress", "local", p.Translated) != "Deny"
}

// hostAt returns the host endpoint of an interface.
func (w World) hostAt(node, link string) *CalicoHost {
	all := slices.Clone(w.Calico.Hosts)
	slices.SortFunc(all, func(a, b CalicoHost) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	for _, name := range []string{link, "*"} {
		for i, h := range all {
			byAddr := h.Spec.InterfaceName == "" && name == link && slices.ContainsFunc(w.Calico.Interfaces[link], func(a netip.Addr) bool {
				return slices.Contains(h.Spec.ExpectedIPs, a.String())
			})
			if h.Spec.Node == node && (h.Spec.InterfaceName == name || byAddr) {
				return &all[i]
			}
		}
	}
	return nil
}

// hostDecision returns Allow or Deny, or nothing if no policy of that kind decides.
func (w World) hostDecision(node, link, way, kind string, p Packet) string {
	h := w.hostAt(node, link)
	if h == nil || kind == "untracked" && h.Spec.InterfaceName == "*" {
		return ""
	}
	var policies []CalicoPolicy
	for _, c := range w.Calico.Policies {
		s := c.Spec
		of := map[string]bool{
			"local": !s.PreDNAT && !s.DoNotTrack, "forward": s.ApplyOnForward && !s.PreDNAT && !s.DoNotTrack,
			"preDNAT": s.PreDNAT && way == "Ingress", "untracked": s.DoNotTrack,
		}[kind]
		if c.Metadata.Namespace == "" && of && c.governs(way) && c.selects(h.Labels) {
			policies = append(policies, c)
		}
	}
	if len(policies) == 0 && kind != "local" {
		return ""
	}
	if kind != "forward" && w.failsafe(way, p) {
		return map[bool]string{true: "Allow"}[kind == "local"]
	}
	slices.SortFunc(policies, func(a, b CalicoPolicy) int {
		order := func(c CalicoPolicy) float64 {
			if c.Spec.Order == nil {
				return 1e300
			}
			return *c.Spec.Order
		}
		return cmp.Or(w.compareTiers(cmp.Or(a.Spec.Tier, "default"), cmp.Or(b.Spec.Tier, "default")), cmp.Compare(order(a), order(b)),
			strings.Compare(a.Metadata.Name+"/", b.Metadata.Name+"/"))
	})
	for i := 0; i < len(policies); {
		name, decided := cmp.Or(policies[i].Spec.Tier, "default"), ""
		for ; i < len(policies) && cmp.Or(policies[i].Spec.Tier, "default") == name; i++ {
			if decided == "" {
				decided = w.calicoDecision(policies[i], way, p)
			}
		}
		if _, deny := w.tierOf(name); decided == "" && deny && (kind == "local" || kind == "forward") {
			decided = "Deny"
		}
		if decided == "Allow" || decided == "Deny" {
			return decided
		}
	}
	switch {
	case kind != "local":
		return ""
	case slices.Contains(h.Spec.Profiles, "projectcalico-default-allow"):
		return "Allow"
	}
	return "Deny"
}

func (w World) failsafe(way string, p Packet) bool {
	ports, peer := w.Calico.Inbound, p.Src
	if way == "Egress" {
		ports, peer = w.Calico.Outbound, p.Dst
	}
	return slices.ContainsFunc(ports, func(f Failsafe) bool {
		return f.Proto == p.Proto && f.Port == p.Port && (f.Net == "" || in(f.Net, peer))
	})
}

// tierOf returns a tier's order, and whether it denies at its end.
func (w World) tierOf(name string) (order float64, deny bool) {
	order, deny = math.MaxFloat64, true // missing: after all others
	for known, at := range map[string]float64{"kube-admin": 1000, "default": 1e6, "kube-baseline": 1e7} {
		if name == known {
			order, deny = at, name == "default"
		}
	}
	for _, o := range w.Calico.Tiers {
		if o.Name == name {
			if deny, order = o.Spec.DefaultAction != "Pass" || name == "default", 1e6; o.Spec.Order != nil {
				order = *o.Spec.Order
			}
		}
	}
	return order, deny
}

func (w World) compareTiers(a, b string) int {
	x, _ := w.tierOf(a)
	y, _ := w.tierOf(b)
	return cmp.Or(cmp.Compare(x, y), strings.Compare(a, b))
}
