// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// Node are the facts about a node, as its agent knows them.
type Node struct {
	Name string `json:"name"`
	// Addrs are the addresses of the node, without those of pods and link-local ones.
	Addrs []netip.Addr `json:"addrs"`
	Pods  []Pod        `json:"pods"`
	// Peers are the other nodes of the mesh; empty without one.
	Peers []Peer `json:"peers,omitempty"`
	// Links, instead of Peers, are the links over which the node reaches them, sorted by name: those of Summary.
	Links []PeerLink `json:"links,omitempty"`
	// Policy: this agent enforces network policies.
	Policy bool `json:"policy,omitempty"`
	// Hosts: policies decide about packets at interfaces of the node, which are Calico's host endpoints.
	Hosts bool `json:"hosts,omitempty"`
	// Time is the time of these facts, as TimeLayout. Only a Record has it.
	Time string `json:"time,omitempty"`
}

// Pod is a pod with an attachment on a node.
type Pod struct {
	Name string `json:"name"` // namespace/name
	// Stage is pending, done or releasing.
	Stage      string      `json:"stage"`
	Interfaces []Interface `json:"interfaces"`
	// HostPorts are ports of the node that lead to the pod.
	HostPorts []HostPort `json:"hostPorts,omitempty"`
}

// HostPort is a port of a node that leads to a port of a pod.
type HostPort struct {
	Protocol model.Protocol `json:"protocol"`
	Port     uint16         `json:"port"`
	To       uint16         `json:"to"` // the pod's port
	// Addr is the address of the node of which it is a port; invalid or unspecified: of all.
	Addr netip.Addr `json:"addr,omitzero"`
}

// Interface is an interface of a pod.
type Interface struct {
	Name    string `json:"name"`
	Network string `json:"network"`
	// HostLink is the interface on the node's side; empty: the pod's interface has none (macvlan, a device).
	HostLink string         `json:"hostLink,omitempty"`
	Addrs    []netip.Prefix `json:"addrs"`
	// VM: a virtual machine's tap is joined to the interface; its guest has the addresses.
	VM bool `json:"vm,omitempty"`
	// Tap is that tap; empty: it is not recorded on the node, because another program made it.
	Tap string `json:"tap,omitempty"`
	// TapOnNode: that tap is the node's, not the pod's.
	TapOnNode bool `json:"tapOnNode,omitempty"`
	// Joined: the tap and the interface are connected without a bridge.
	Joined bool `json:"joined,omitempty"`
	// Leases are the addresses of a guest behind NAT, which are not the pod's, and LeaseLink the pod's interface to it.
	Leases    []netip.Addr `json:"leases,omitempty"`
	LeaseLink string       `json:"leaseLink,omitempty"`
}

// Peer is how the mesh of a node reaches another node.
type Peer struct {
	Name  string `json:"name"`
	Paths []Path `json:"paths"`
}

// Path is the planned path to a prefix of a peer's pods.
type Path struct {
	CIDR netip.Prefix `json:"cidr"`
	// Link is the link of the route, a tunnel's or the underlay's; Far the peer's address, at the tunnel's other end.
	Link   string     `json:"link"`
	Tunnel bool       `json:"tunnel,omitempty"`
	Far    netip.Addr `json:"far,omitzero"`
	// Gateway is the route's.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Learned: the route was learned by BGP. It may have several next hops, and routers between, which are not checked.
	Learned bool `json:"learned,omitempty"`
}

// PeerLink is a link over which a node reaches a number of peers.
type PeerLink struct {
	Link   string `json:"link"`
	Tunnel bool   `json:"tunnel,omitempty"`
	Peers  int    `json:"peers"`
}

// PeerLinks returns the links over which the node reaches peers, sorted by name.
func (n Node) PeerLinks() []PeerLink {
	if n.Links != nil {
		return n.Links
	}
	out := []PeerLink{}
	for _, p := range n.Peers {
		var of []string
		for _, w := range p.Paths {
			if w.Link == "" || slices.Contains(of, w.Link) {
				continue
			}
			of = append(of, w.Link)
			i := slices.IndexFunc(out, func(l PeerLink) bool { return l.Link == w.Link })
			if i < 0 {
				i = len(out)
				out = append(out, PeerLink{Link: w.Link, Tunnel: w.Tunnel})
			}
			out[i].Peers++
		}
	}
	slices.SortFunc(out, func(a, b PeerLink) int { return cmp.Compare(a.Link, b.Link) })
	return out
}

// Summary returns the facts with Links instead of Peers, whose size grows with the number of nodes.
func (n Node) Summary() Node {
	n.Links, n.Peers = n.PeerLinks(), nil
	return n
}

// pod returns a pod of the node.
func (n Node) pod(name string) (Pod, bool) {
	i := slices.IndexFunc(n.Pods, func(p Pod) bool { return p.Name == name })
	if i < 0 {
		return Pod{}, false
	}
	return n.Pods[i], true
}

// path returns the planned path to an address of a peer's pod.
func (n Node) path(to netip.Addr) (Path, bool) {
	_, best, ok := n.peerPath(to)
	return best, ok
}

// peerPath returns the peer that has an address's prefix, too.
func (n Node) peerPath(to netip.Addr) (peer string, best Path, ok bool) {
	for _, p := range n.Peers {
		for _, w := range p.Paths {
			if w.CIDR.Contains(to) && (!best.CIDR.IsValid() || w.CIDR.Bits() > best.CIDR.Bits()) {
				peer, best = p.Name, w
			}
		}
	}
	return peer, best, best.CIDR.IsValid()
}

// PrefixNode returns the node whose prefix has an address, as its peers know; empty: none has.
func PrefixNode(nodes map[string]Node, a netip.Addr) (node string) {
	best := -1
	for _, n := range sorted(nodes) {
		if peer, path, ok := n.peerPath(a); ok && path.CIDR.Bits() > best {
			node, best = peer, path.CIDR.Bits()
		}
	}
	return node
}

// tunnelTo returns the tunnel's link over which the node reaches the pods of a peer that have addresses of the family;
// empty: it reaches them otherwise.
func (n Node) tunnelTo(peer string, like netip.Addr) string {
	for _, p := range n.Peers {
		for _, w := range p.Paths {
			if p.Name == peer && w.Tunnel && sameFamily(w.CIDR.Addr(), like) {
				return w.Link
			}
		}
	}
	return ""
}

// EndKind is the kind of an end.
type EndKind string

// The kinds of ends.
const (
	PodEnd     EndKind = "pod"
	NodeEnd    EndKind = "node"
	ServiceEnd EndKind = "service"
	OutsideEnd EndKind = "outside"
)

// End is one end of a connection.
type End struct {
	Kind EndKind `json:"kind"`
	// Name is namespace/name of a pod or service, the name of a node, or an address.
	Name string `json:"name"`
	// Node is the node of a pod, or the node itself; empty for others. On the way to an address that no pod has it is the
	// node whose prefix has it.
	Node string     `json:"node,omitempty"`
	Addr netip.Addr `json:"addr"`
	// Interface is the pod's interface; zero for others, and for an address that no interface has.
	Interface Interface `json:"interface,omitzero"`
	Stage     string    `json:"stage,omitempty"`
	// Backends are the ends to which the address of a service, or the port of a node, is translated. Only the ready ones.
	Backends []End `json:"backends,omitempty"`
	// Policy is why a service has no backend for this client, if it is known (internalTrafficPolicy …).
	Policy string `json:"policy,omitempty"`
	// BackendPort is the port of the backends.
	BackendPort uint16 `json:"backendPort,omitempty"`
	// Masquerade: the node whose port it is sends with its own address to the backends.
	Masquerade bool `json:"masquerade,omitempty"`
}

// translated reports whether a port of the node leads to backends.
func (e End) translated() bool { return e.Kind == NodeEnd && (len(e.Backends) > 0 || e.Policy != "") }

// plain returns the node without the backends of its port.
func (e End) plain() End { return End{Kind: e.Kind, Name: e.Name, Node: e.Node, Addr: e.Addr} }

// String returns the end as users write it: "pod shop/web (10.42.1.2)".
func (e End) String() string {
	if e.Kind == OutsideEnd {
		return e.Addr.String()
	}
	return string(e.Kind) + " " + e.Name + " (" + e.Addr.String() + ")"
}
