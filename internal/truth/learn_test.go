// SPDX-License-Identifier: Apache-2.0

package truth_test

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// learn tells a compiler a whole cluster.
func learn(x *policy.Index, w naive.World) {
	for _, name := range nodes() {
		x.SetNode(model.Node{Name: name, Labels: w.Nodes[name].Labels, Addrs: w.Nodes[name].Addrs})
	}
	for name, labels := range w.Namespaces {
		x.SetNamespace(model.Namespace{Name: name, Labels: labels})
	}
	for i := range w.Pods {
		learnPod(x, &w.Pods[i])
	}
	for _, p := range w.Policies {
		x.SetPolicy(modelPolicy(p))
	}
	for _, p := range w.Cluster {
		x.SetPolicy(modelCluster(p))
	}
}

// learnPod tells of a pod as the API server has it and of its interfaces as its node has published them. Who has completed
// has none, but its status keeps the address.
func learnPod(x *policy.Index, p *naive.Pod) {
	pod := model.Pod{Namespace: p.Namespace, Name: p.Name, UID: refOf(p).UID, Node: p.Node, HostNetwork: p.HostNetwork, Labels: p.Labels, IPs: p.Addrs[""], Phase: "Running"}
	if p.Done {
		pod.Phase = "Succeeded"
	}
	for _, port := range p.Ports {
		pod.Ports = append(pod.Ports, model.PodPort{Name: port.Name, Protocol: model.Protocol(port.Proto), Number: uint16(port.Port)})
	}
	x.SetPod(pod)
	for _, e := range endpoints(p) {
		if p.Done || p.HostNetwork {
			x.DelEndpoint(e.Key())
		} else {
			x.SetEndpoint(e)
		}
	}
}

func endpoints(p *naive.Pod) []model.Endpoint {
	out := []model.Endpoint{{Pod: refOf(p), Node: p.Node, IfName: "eth0", HostLink: linkOf(p), Addrs: p.Addrs[""], Point: model.PointHost}}
	if a := p.Addrs[second]; len(a) > 0 {
		out = append(out, model.Endpoint{Pod: refOf(p), Node: p.Node, Network: second, IfName: "net1", Addrs: a, Point: model.PointPod})
	}
	return out
}

func modelSelector(s *naive.Selector) model.Selector {
	if s == nil {
		return model.Selector{}
	}
	out := model.Selector{Labels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		out.Requirements = append(out.Requirements, model.SelectorRequirement{Key: e.Key, Op: model.SelectorOp(e.Operator), Values: e.Values})
	}
	return out
}

func modelPolicy(p naive.NetworkPolicy) model.Policy {
	out := model.Policy{PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: p.Metadata.Namespace, Name: p.Metadata.Name}, Networks: p.Networks}
	if len(p.Networks) > 0 {
		out.Kind = model.KindMultiNetworkPolicy
	}
	out.Subject = model.PodPeer{Namespace: p.Metadata.Namespace, Pods: modelSelector(&p.Spec.PodSelector)}
	types := p.Spec.PolicyTypes
	if len(types) == 0 {
		if types = []string{"Ingress"}; len(p.Spec.Egress) > 0 {
			types = append(types, "Egress")
		}
	}
	rules := func(way string, all []naive.Rule) model.PolicyDirection {
		d := model.PolicyDirection{On: slices.Contains(types, way)}
		for _, r := range all {
			d.Rules = append(d.Rules, modelRule(p.Metadata.Namespace, r))
		}
		return d
	}
	out.Ingress, out.Egress = rules("Ingress", p.Spec.Ingress), rules("Egress", p.Spec.Egress)
	return out
}

func modelRule(namespace string, r naive.Rule) model.PolicyRule {
	out := model.PolicyRule{Action: model.PolicyAccept, AnyPeer: len(r.From)+len(r.To) == 0, AnyPort: len(r.Ports) == 0}
	for _, peer := range append(slices.Clone(r.From), r.To...) {
		if b := peer.IPBlock; b != nil {
			block := &model.IPBlock{CIDR: netip.MustParsePrefix(b.CIDR)}
			for _, e := range b.Except {
				block.Except = append(block.Except, netip.MustParsePrefix(e))
			}
			out.Peers = append(out.Peers, model.PolicyPeer{Block: block})
			continue
		}
		pods := &model.PodPeer{Pods: modelSelector(peer.PodSelector)}
		if peer.NamespaceSelector == nil {
			pods.Namespace = namespace
		} else {
			pods.Namespaces = modelSelector(peer.NamespaceSelector)
		}
		out.Peers = append(out.Peers, model.PolicyPeer{Pods: pods})
	}
	for _, port := range r.Ports {
		x := model.PolicyPort{Protocol: model.Protocol(port.Protocol)}
		if x.Protocol == "" {
			x.Protocol = model.TCP
		}
		switch n := port.Port.(type) {
		case string:
			x.Name = n
		case int:
			x.First, x.Last = uint16(n), uint16(max(n, port.EndPort))
		}
		out.Ports = append(out.Ports, x)
	}
	return out
}

func modelCluster(p naive.ClusterPolicy) model.Policy {
	out := model.Policy{PolicyKey: model.PolicyKey{Kind: model.KindClusterNetworkPolicy, Name: p.Metadata.Name}, Tier: model.PolicyTier(p.Spec.Tier), Priority: p.Spec.Priority}
	out.Subject = *clusterPeers(p.Spec.Subject)[0].Pods
	rules := func(all []naive.ClusterRule) model.PolicyDirection {
		d := model.PolicyDirection{On: len(all) > 0}
		for _, r := range all {
			rule := model.PolicyRule{Name: r.Name, Action: model.PolicyAction(r.Action), AnyPort: len(r.Protocols) == 0}
			for _, peer := range append(slices.Clone(r.From), r.To...) {
				rule.Peers = append(rule.Peers, clusterPeers(peer)...)
			}
			for _, x := range r.Protocols {
				rule.Ports = append(rule.Ports, clusterPort(x))
			}
			d.Rules = append(d.Rules, rule)
		}
		return d
	}
	out.Ingress, out.Egress = rules(p.Spec.Ingress), rules(p.Spec.Egress)
	return out
}

func clusterPeers(p naive.ClusterPeer) []model.PolicyPeer {
	switch {
	case p.Namespaces != nil:
		return []model.PolicyPeer{{Pods: &model.PodPeer{Namespaces: modelSelector(p.Namespaces)}}}
	case p.Pods != nil:
		return []model.PolicyPeer{{Pods: &model.PodPeer{Namespaces: modelSelector(&p.Pods.NamespaceSelector), Pods: modelSelector(&p.Pods.PodSelector)}}}
	case p.Nodes != nil:
		s := modelSelector(p.Nodes)
		return []model.PolicyPeer{{Nodes: &s}}
	}
	var out []model.PolicyPeer
	for _, c := range p.Networks {
		out = append(out, model.PolicyPeer{Block: &model.IPBlock{CIDR: netip.MustParsePrefix(c)}})
	}
	return out
}

func clusterPort(x naive.Protocol) model.PolicyPort {
	if x.Named != "" {
		return model.PolicyPort{Name: x.Named}
	}
	for proto, of := range map[model.Protocol]*naive.ProtocolPort{model.TCP: x.TCP, model.UDP: x.UDP, model.SCTP: x.SCTP} {
		switch {
		case of == nil:
		case of.DestinationPort == nil:
			return model.PolicyPort{Protocol: proto}
		case of.DestinationPort.Range != nil:
			return model.PolicyPort{Protocol: proto, First: uint16(of.DestinationPort.Range.Start), Last: uint16(of.DestinationPort.Range.End)}
		default:
			n := uint16(of.DestinationPort.Number)
			return model.PolicyPort{Protocol: proto, First: n, Last: n}
		}
	}
	return model.PolicyPort{}
}
