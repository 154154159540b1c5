// SPDX-License-Identifier: Apache-2.0

package naive

import (
	"net/netip"
	"slices"
	"strings"
)

// Allowed reports whether the policies of both endpoints allow a connection's first packet.
func (w World) Allowed(p Packet) bool {
	src, dst := w.owner(p.Src), w.owner(p.Dst)
	if src.pod != nil && src.pod == dst.pod { // the packet never leaves the pod
		return true
	}
	near := dst.pod == nil || slices.Contains(w.Nodes[dst.pod.Node].Addrs, p.Src) // a node can always reach its own pods
	return (src.pod == nil || w.may("Egress", src, dst, p)) && (near || w.may("Ingress", dst, src, p))
}

func (w World) owner(a netip.Addr) party {
	for i, pod := range w.Pods {
		for network, addrs := range pod.Addrs {
			if !pod.HostNetwork && !pod.Done && slices.Contains(addrs, a) {
				return party{a, &w.Pods[i], network}
			}
		}
	}
	return party{addr: a}
}

// may evaluates the tiers in order; the first decision is final.
func (w World) may(way string, subject, peer party, p Packet) bool {
	if w.Calico != nil && subject.network == "" {
		return w.mayTiered(way, subject, peer, p)
	}
	if answer := w.tier("Admin", way, subject, peer, p); answer != "" {
		return answer == "Accept"
	}
	isolated := false
	for _, policy := range w.Policies {
		if !policy.isolates(way, subject) {
			continue
		}
		if isolated = true; w.networkDecision(policy, way, peer, p) != "" {
			return true
		}
	}
	return !isolated && w.tier("Baseline", way, subject, peer, p) != "Deny"
}

// networkDecision returns "Accept" if a rule of a NetworkPolicy matches.
func (w World) networkDecision(np NetworkPolicy, way string, peer party, p Packet) string {
	for _, r := range map[string][]Rule{"Ingress": np.Spec.Ingress, "Egress": np.Spec.Egress}[way] {
		if w.anyPeer(np, r, peer) && anyPort(r.Ports, w.owner(p.Dst).pod, p) {
			return "Accept"
		}
	}
	return ""
}

func (np NetworkPolicy) isolates(way string, s party) bool {
	typed := slices.Contains(np.Spec.PolicyTypes, way) ||
		len(np.Spec.PolicyTypes) == 0 && (way == "Ingress" || len(np.Spec.Egress) > 0)
	return typed && np.Metadata.Namespace == s.pod.Namespace && np.Spec.PodSelector.selects(s.pod.Labels) &&
		np.speaksOf(s.network)
}

func (np NetworkPolicy) speaksOf(n string) bool {
	return slices.Contains(np.Networks, n) || len(np.Networks) == 0 && n == ""
}

func (w World) anyPeer(np NetworkPolicy, r Rule, peer party) bool {
	all := append(slices.Clone(r.From), r.To...)
	return len(all) == 0 || slices.ContainsFunc(all, func(x Peer) bool {
		if x.IPBlock != nil {
			return in(x.IPBlock.CIDR, peer.addr) && !slices.ContainsFunc(x.IPBlock.Except, func(c string) bool {
				return in(c, peer.addr)
			})
		}
		if peer.pod == nil || !np.speaksOf(peer.network) ||
			x.NamespaceSelector == nil && peer.pod.Namespace != np.Metadata.Namespace {
			return false
		}
		return x.NamespaceSelector.selects(w.Namespaces[peer.pod.Namespace]) && x.PodSelector.selects(peer.pod.Labels)
	})
}

func anyPort(ports []Port, dst *Pod, p Packet) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(x Port) bool {
		if x.Protocol != p.Proto && (x.Protocol != "" || p.Proto != "TCP") {
			return false
		}
		if name, is := x.Port.(string); is {
			return dst != nil && slices.Contains(dst.Ports, PodPort{name, p.Proto, p.Port})
		}
		n, is := x.Port.(int)
		return !is || p.Port == n || p.Port > n && p.Port <= x.EndPort
	})
}

// tier returns the decision of the cluster policies of one tier: Accept, Deny, or nothing.
func (w World) tier(name, way string, subject, peer party, p Packet) string {
	policies := slices.Clone(w.Cluster)
	slices.SortFunc(policies, func(a, b ClusterPolicy) int { return a.Spec.Priority - b.Spec.Priority })
	for _, c := range policies {
		if c.Spec.Tier != name || subject.network != "" || !w.selected(c.Spec.Subject, subject) {
			continue
		}
		if answer := w.clusterDecision(c, way, peer, p); answer != "" {
			return strings.TrimPrefix(answer, "Pass")
		}
	}
	return ""
}

// clusterDecision returns the action of the first rule of a ClusterNetworkPolicy that matches.
func (w World) clusterDecision(c ClusterPolicy, way string, peer party, p Packet) string {
	for _, r := range map[string][]ClusterRule{"Ingress": c.Spec.Ingress, "Egress": c.Spec.Egress}[way] {
		protocol := func(x Protocol) bool { return x.matches(w.owner(p.Dst).pod, p) }
		who := func(x ClusterPeer) bool { return w.selected(x, peer) }
		if (len(r.Protocols) == 0 || slices.ContainsFunc(r.Protocols, protocol)) &&
			slices.ContainsFunc(append(slices.Clone(r.From), r.To...), who) {
			return r.Action
		}
	}
	return ""
}

func (x Protocol) matches(dst *Pod, p Packet) bool {
	if x.Named != "" {
		return dst != nil && slices.Contains(dst.Ports, PodPort{x.Named, p.Proto, p.Port})
	}
	of := map[string]*ProtocolPort{"TCP": x.TCP, "UDP": x.UDP, "SCTP": x.SCTP}[p.Proto]
	if of == nil || of.DestinationPort == nil {
		return of != nil
	}
	d := of.DestinationPort
	return d.Number == p.Port || d.Range != nil && d.Range.Start <= p.Port && p.Port <= d.Range.End
}

func (w World) selected(x ClusterPeer, who party) bool {
	if pods := x.Pods; x.Namespaces != nil || pods != nil {
		if pods == nil {
			pods = &Both{NamespaceSelector: *x.Namespaces}
		}
		return who.pod != nil && who.network == "" && pods.NamespaceSelector.selects(w.Namespaces[who.pod.Namespace]) &&
			pods.PodSelector.selects(who.pod.Labels)
	}
	for _, n := range w.Nodes {
		if x.Nodes != nil && slices.Contains(n.Addrs, who.addr) && x.Nodes.selects(n.Labels) {
			return true
		}
	}
	return slices.ContainsFunc(x.Networks, func(c string) bool { return in(c, who.addr) })
}

// selects reports whether labels match all conditions; a nil selector matches nothing.
func (s *Selector) selects(labels map[string]string) bool {
	if s == nil {
		return true
	}
	for k, v := range s.MatchLabels {
		if have, is := labels[k]; !is || have != v {
			return false
		}
	}
	return !slices.ContainsFunc(s.MatchExpressions, func(e Expression) bool {
		have, is := labels[e.Key]
		of := is && slices.Contains(e.Values, have)
		return !map[string]bool{"In": of, "NotIn": !of, "Exists": is, "DoesNotExist": !is}[e.Operator]
	})
}

func in(cidr string, a netip.Addr) bool { return netip.MustParsePrefix(cidr).Contains(a) }
