// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

func drawPolicy(t *rapid.T, ns, name string) model.Policy {
	if rapid.IntRange(0, 2).Draw(t, "calico") == 0 {
		return drawCalicoPolicy(t, ns, name)
	}
	p := model.Policy{PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: ns, Name: name}}
	p.Subject = model.PodPeer{Namespace: ns, Pods: drawSelector(t)}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		p.PolicyKey = model.PolicyKey{Kind: model.KindClusterNetworkPolicy, Name: name}
		p.Tier = rapid.SampledFrom([]model.PolicyTier{model.TierAdmin, model.TierBaseline}).Draw(t, "tier")
		p.Priority = rapid.IntRange(0, 2).Draw(t, "priority")
		p.Subject = model.PodPeer{Namespaces: drawSelector(t), Pods: drawSelector(t)}
	case 1:
		p.Kind = model.KindMultiNetworkPolicy
		p.Networks = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x/net", "x/other"}), 1, 2,
			rapid.ID).Draw(t, "networks")
	}
	p.Ingress, p.Egress = drawDirection(t, p.Kind, ns), drawDirection(t, p.Kind, ns)
	return p
}

func drawDirection(t *rapid.T, kind model.PolicyKind, ns string) model.PolicyDirection {
	d := model.PolicyDirection{On: rapid.Bool().Draw(t, "on")}
	if !d.On {
		return d
	}
	d.Rules = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.PolicyRule {
		r := model.PolicyRule{
			Action: model.PolicyAccept, AnyPeer: rapid.IntRange(0, 3).Draw(t, "any peer") == 0,
			AnyPort: rapid.Bool().Draw(t, "any port"),
		}
		if kind == model.KindClusterNetworkPolicy {
			r.Action = rapid.SampledFrom([]model.PolicyAction{
				model.PolicyAccept, model.PolicyDeny, model.PolicyPass,
			}).Draw(t, "action")
		}
		if !r.AnyPeer {
			r.Peers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.PolicyPeer { return drawPeer(t, ns) }), 0,
				3).Draw(t, "peers")
		}
		if !r.AnyPort {
			r.Ports = rapid.SliceOfN(rapid.Custom(drawPort), 0, 3).Draw(t, "ports")
		}
		return r
	}), 0, 3).Draw(t, "rules")
	return d
}

func drawPeer(t *rapid.T, ns string) model.PolicyPeer {
	switch rapid.IntRange(0, 4).Draw(t, "peer") {
	case 0:
		return model.PolicyPeer{Pods: &model.PodPeer{Namespaces: drawSelector(t), Pods: drawSelector(t)}}
	case 1:
		b := rapid.SampledFrom([]string{"10.0.0.0/30", "10.0.0.0/8", "0.0.0.0/0", "::/0", "fd00::/126"}).Draw(t, "cidr")
		block := &model.IPBlock{CIDR: netip.MustParsePrefix(b)}
		if e := rapid.SampledFrom([]string{"", "10.0.0.2/32", "fd00::2/127", "10.0.0.0/8"}).Draw(t, "except"); e != "" {
			block.Except = []netip.Prefix{netip.MustParsePrefix(e)}
		}
		return model.PolicyPeer{Block: block}
	case 2:
		s := drawSelector(t)
		return model.PolicyPeer{Nodes: &s}
	}
	return model.PolicyPeer{Pods: &model.PodPeer{Namespace: ns, Pods: drawSelector(t)}}
}

func drawPort(t *rapid.T) model.PolicyPort {
	if rapid.IntRange(0, 2).Draw(t, "named") == 0 {
		return model.PolicyPort{
			Name:     rapid.SampledFrom([]string{"web", "dns"}).Draw(t, "port"),
			Protocol: rapid.SampledFrom([]model.Protocol{"", model.TCP, model.UDP}).Draw(t, "protocol"),
		}
	}
	first := rapid.IntRange(0, 83).Draw(t, "first")
	if first < 80 {
		return model.PolicyPort{Protocol: drawProtocol(t)}
	}
	return model.PolicyPort{
		Protocol: drawProtocol(t), First: uint16(first), Last: uint16(first + rapid.IntRange(0, 2).Draw(t, "more")),
	}
}

func drawSelector(t *rapid.T) model.Selector {
	if rapid.Bool().Draw(t, "all") {
		return model.Selector{}
	}
	s := model.Selector{Labels: map[string]string{}}
	key, value := rapid.SampledFrom([]string{"app", "tier", "kubernetes.io/metadata.name"}).Draw(t, "key"),
		rapid.SampledFrom([]string{"1", "2", "x"}).Draw(t, "value")
	switch op := rapid.SampledFrom([]model.SelectorOp{
		"=", model.SelectIn, model.SelectNotIn, model.SelectExists, model.SelectDoesNotExist,
	}).Draw(t, "op"); op {
	case "=":
		s.Labels[key] = value
	case model.SelectIn, model.SelectNotIn:
		s.Requirements = append(s.Requirements, model.SelectorRequirement{Key: key, Op: op, Values: []string{value}})
	default:
		s.Requirements = append(s.Requirements, model.SelectorRequirement{Key: key, Op: op})
	}
	return s
}
