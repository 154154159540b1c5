// SPDX-License-Identifier: Apache-2.0

package hostendpoint

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Effective returns the settings of a node: those for it by name, then those of the oldest that selects it, then the
// cluster's. A field that none sets has Calico's default.
func Effective(all []model.FelixConfiguration, node string, labels map[string]string) model.FelixConfiguration {
	var own, selected, cluster []model.FelixConfiguration
	for _, f := range all {
		switch {
		case f.Name == "node."+node:
			own = append(own, f)
		case f.Name == "default":
			cluster = append(cluster, f)
		case f.Nodes != nil && f.Nodes.MatchesView(model.Labels(labels)):
			selected = append(selected, f)
		}
	}
	slices.SortFunc(selected, func(a, b model.FelixConfiguration) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	out := model.FelixConfiguration{Name: node}
	for _, f := range slices.Concat(own, selected[:min(1, len(selected))], cluster) {
		if out.Inbound == nil {
			out.Inbound = f.Inbound
		}
		if out.Outbound == nil {
			out.Outbound = f.Outbound
		}
		out.EndpointToHost = cmp.Or(out.EndpointToHost, f.EndpointToHost)
	}
	if out.Inbound == nil {
		ports := defaultInbound()
		out.Inbound = &ports
	}
	if out.Outbound == nil {
		ports := defaultOutbound()
		out.Outbound = &ports
	}
	return out
}

// defaultInbound are Calico's: SSH, BGP, etcd, Typha, the API server, etcd of self-hosted clusters, and DHCP.
func defaultInbound() []model.FailsafePort {
	return append(ports(model.TCP, 22, 179, 2379, 2380, 5473, 6443, 6666, 6667), ports(model.UDP, 68)...)
}

// defaultOutbound are Calico's: DNS and DHCP, and those above without SSH.
func defaultOutbound() []model.FailsafePort {
	return append(ports(model.UDP, 53, 67), ports(model.TCP, 179, 2379, 2380, 5473, 6443, 6666, 6667)...)
}

func ports(protocol model.Protocol, numbers ...uint16) (out []model.FailsafePort) {
	for _, n := range numbers {
		out = append(out, model.FailsafePort{Protocol: protocol, Port: n})
	}
	return out
}

// Rules returns ports that stay open as rules: those of one protocol and prefix are in one. Replies reports whether they are
// the ports of the source, for packets that answer where connections are not tracked.
func Rules(in []model.FailsafePort, inbound, replies bool) (out []model.PolicyRule) {
	type key struct {
		protocol model.Protocol
		net      netip.Prefix
	}
	var keys []key
	by := map[key][]model.PolicyPort{}
	for _, p := range in {
		k := key{p.Protocol, p.Net}
		if by[k] == nil {
			keys = append(keys, k)
		}
		by[k] = append(by[k], model.PolicyPort{Protocol: p.Protocol, First: p.Port, Last: p.Port})
	}
	for _, k := range keys {
		c := &model.RuleConditions{Protocol: number(k.protocol)}
		peer, ports := &c.Destination, &c.Destination
		if inbound {
			peer = &c.Source
		}
		if replies {
			ports = &c.Source
		}
		ports.Ports = by[k]
		if k.net.IsValid() {
			peer.Nets = []netip.Prefix{k.net}
		}
		out = append(out, model.PolicyRule{Action: model.PolicyAccept, Conditions: c})
	}
	return out
}

func number(p model.Protocol) uint8 {
	switch p {
	case model.UDP:
		return model.NumberUDP
	case model.SCTP:
		return model.NumberSCTP
	}
	return model.NumberTCP
}
