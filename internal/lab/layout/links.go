// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/lab/cut"
	"github.com/weft-net/weft/internal/state"
)

// Bridges returns the bridges of the wires.
func (l Layout) Bridges() state.Fragment {
	f := state.Fragment{Owner: "lab/wires"}
	for _, w := range l.Wires {
		f.Host.Links = append(f.Host.Links, state.Link{
			Name: w.Name, Kind: state.Bridge, Up: state.On(), Bridge: &state.BridgeAttrs{McastSnooping: state.Off()},
		})
	}
	// The wires are layer 2 only: without addresses and router advertisements.
	f.Host.Sysctls = append(f.Host.Sysctls,
		state.Sysctl{Name: "net/ipv6/conf/all/disable_ipv6", Value: "1", IfPresent: true},
		state.Sysctl{Name: "net/ipv6/conf/default/disable_ipv6", Value: "1", IfPresent: true})
	return f
}

// NodeLinks returns node i's links: the host space is the namespace of the wires, the pod space the node's.
func (l Layout) NodeLinks(i int) state.Fragment {
	n := l.Nodes[i]
	f := state.Fragment{Owner: "lab/" + n.Name}
	f.Pod.Links = append(f.Pod.Links, state.Link{Name: "lo", Up: state.On()})
	// A node accepts packets on every wire, whatever the host's default of rp_filter is.
	f.Pod.Sysctls = append(f.Pod.Sysctls,
		state.Sysctl{Name: "net/ipv4/conf/all/rp_filter", Value: "0"},
		state.Sysctl{Name: "net/ipv4/conf/default/rp_filter", Value: "0"})
	// A node answers a guest's ARP requests for the gateway of routed pods if it has a route to it. On other nodes that is
	// the default route, which a lab has none of.
	f.Pod.Routes = append(f.Pod.Routes, state.Route{Dst: netip.MustParsePrefix("169.254.1.1/32"), Link: "lo"})
	f.Host.Links = l.Ports(n).Host.Links
	for w := range l.Wires {
		eth, port := fmt.Sprintf("eth%d", w), portName(n.Name, w)
		f.Pod.Links = append(f.Pod.Links, state.Link{
			Name: eth, Kind: state.Veth, Up: state.On(), MAC: n.mac(eth),
			Peer: &state.Peer{Space: state.Host, Name: port},
		})
		for _, p := range n.Addrs[w] {
			f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: eth, Prefix: p, NoDAD: true})
		}
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + eth + "/rp_filter", Value: "0"})
		f.Pod.Neighs = append(f.Pod.Neighs, l.neighbors(i, w)...)
	}
	return f
}

// Ports returns a node's ports on the wires, in the namespace of the wires.
func (l Layout) Ports(n Node) state.Fragment {
	f := state.Fragment{Owner: "lab/" + n.Name}
	for w, wire := range l.Wires {
		f.Host.Links = append(f.Host.Links, state.Link{
			Name: portName(n.Name, w), Kind: state.Veth, Master: wire.Name, Up: state.On(),
			Peer: &state.Peer{Space: state.Pod, Name: fmt.Sprintf("eth%d", w)},
		})
	}
	return f
}

// NeighborsFor returns the permanent neighbor entries for a node that every other node has.
func (l Layout) NeighborsFor(node string) state.Fragment {
	f := state.Fragment{Owner: "lab/" + node}
	for w := range l.Wires {
		f.Host.Neighs = append(f.Host.Neighs, l.Find(node).neighbors(w)...)
	}
	return f
}

// portName returns the name of a node's port on a wire.
func portName(node string, wire int) string { return fmt.Sprintf("%s-%d", node, wire) }

// CutWires returns the names that cuts use.
func (l Layout) CutWires() cut.Wires {
	var w cut.Wires
	for _, wire := range l.Wires {
		w.Names = append(w.Names, wire.Name)
	}
	for _, n := range l.Nodes {
		w.Nodes = append(w.Nodes, n.Name)
	}
	return w
}

// Cuts returns the packet filter of the wires.
func (l Layout) Cuts(all []cut.Cut) state.Fragment {
	w := l.CutWires()
	return w.Fragment(all, func(node, wire string) string { return portName(node, slices.Index(w.Names, wire)) })
}

// neighbors returns node i's permanent neighbor entries for all others on a wire. Learned entries would not suffice: the
// kernel limits them (gc_thresh3, 1024 per family) for all namespaces of the host in total, and 17 nodes need more.
func (l Layout) neighbors(i, w int) []state.Neigh {
	var out []state.Neigh
	for j, n := range l.Nodes {
		if j != i {
			out = append(out, n.neighbors(w)...)
		}
	}
	return out
}

// neighbors returns the neighbor entries for the node on a wire.
func (n Node) neighbors(w int) []state.Neigh {
	eth := fmt.Sprintf("eth%d", w)
	var out []state.Neigh
	for _, p := range n.Addrs[w] {
		out = append(out, state.Neigh{Link: eth, IP: p.Addr(), MAC: n.mac(eth)})
	}
	return out
}

func (n Node) mac(eth string) state.MAC { return state.SeedMAC("lab/" + n.Name + "/" + eth) }
