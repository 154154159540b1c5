// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Resolve returns the ends that a name stands for, one for each address: a pod (namespace/name), a node, or an address,
// which is that of a pod, of a node, or outside. network chooses among a pod's networks; empty: the
// cluster's. Without an end the name is not known to the nodes.
func Resolve(nodes map[string]Node, name, network string) []End {
	if a, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return []End{byAddr(nodes, a.Unmap(), network)}
	}
	var out []End
	for _, node := range sorted(nodes) {
		if node.Name == name {
			for _, a := range onePerFamily(node.Addrs) {
				out = append(out, End{Kind: NodeEnd, Name: name, Node: name, Addr: a})
			}
		}
		if p, ok := node.pod(name); ok {
			out = append(out, podEnds(node, p, network)...)
		}
	}
	return out
}

// WithHostPort returns the end of a node with the pod to which a port of it leads, if there is one.
func WithHostPort(nodes map[string]Node, end End, protocol model.Protocol, port uint16) End {
	if end.Kind != NodeEnd || port == 0 {
		return end
	}
	for _, p := range nodes[end.Node].Pods {
		for _, h := range p.HostPorts {
			if h.Protocol != protocol || h.Port != port || h.Addr.IsValid() && !h.Addr.IsUnspecified() && h.Addr != end.Addr {
				continue
			}
			for _, backend := range podEnds(nodes[end.Node], p, "") {
				if sameFamily(backend.Addr, end.Addr) {
					end.Backends, end.BackendPort = []End{backend}, h.To
					return end
				}
			}
		}
	}
	return end
}

// Names returns the names that Resolve knows, for suggestions.
func Names(nodes map[string]Node) []string {
	var out []string
	for _, node := range sorted(nodes) {
		out = append(out, node.Name)
		for _, p := range node.Pods {
			out = append(out, p.Name)
		}
	}
	return out
}

func sorted(nodes map[string]Node) []Node {
	out := make([]Node, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// podEnds returns the ends of a pod's interface in a network; without a network, in the cluster's, else of its first
// interface.
func podEnds(node Node, p Pod, network string) []End {
	if len(p.Interfaces) == 0 { // its network is being set up
		return []End{{Kind: PodEnd, Name: p.Name, Node: node.Name, Stage: p.Stage}}
	}
	at := slices.IndexFunc(p.Interfaces, func(i Interface) bool { return i.Network == network })
	if at < 0 && network != "" {
		return nil
	}
	i := p.Interfaces[max(at, 0)]
	var out []End
	for _, a := range i.Addrs {
		if !slices.ContainsFunc(out, func(o End) bool { return sameFamily(o.Addr, a.Addr()) }) {
			out = append(out, End{Kind: PodEnd, Name: p.Name, Node: node.Name, Addr: a.Addr(), Interface: i, Stage: p.Stage})
		}
	}
	return out
}

func onePerFamily(addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if !slices.ContainsFunc(out, func(o netip.Addr) bool { return sameFamily(o, a) }) {
			out = append(out, a)
		}
	}
	return out
}

// byAddr returns the end that has an address.
func byAddr(nodes map[string]Node, a netip.Addr, network string) End {
	for _, node := range sorted(nodes) {
		if slices.Contains(node.Addrs, a) {
			return End{Kind: NodeEnd, Name: node.Name, Node: node.Name, Addr: a}
		}
		for _, p := range node.Pods {
			for _, i := range p.Interfaces {
				has := slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
				if has && (network == "" || i.Network == network) {
					return End{Kind: PodEnd, Name: p.Name, Node: node.Name, Addr: a, Interface: i, Stage: p.Stage}
				}
			}
		}
	}
	return End{Kind: OutsideEnd, Name: a.String(), Addr: a}
}

// addr parses an address that was printed before.
func addr(s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// Pair returns pairs of ends of one family.
func Pair(from, to []End) (pairs [][2]End) {
	for _, f := range from {
		for _, t := range to {
			if !f.Addr.IsValid() || !t.Addr.IsValid() || sameFamily(f.Addr, t.Addr) {
				pairs = append(pairs, [2]End{f, t})
			}
		}
	}
	return pairs
}
