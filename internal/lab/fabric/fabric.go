// SPDX-License-Identifier: Apache-2.0

// Package fabric makes the routers of a lab: a leaf-spine fabric of two racks. Each router is a namespace with weft's own
// agent and weft-bgp, and each link has link-local addresses only.
//
//	     spine1    spine2      AS 65000
//	       |    \ /    |
//	       |    / \    |
//	     leaf1     leaf2       AS 65001, AS 65002
//	      |          |
//	node1 node3   node2 node4  AS 64513, AS 64514 and so on
//
// The link of a node to its leaf is fabric0. Nodes keep their wires: the fabric has the routes to pods. Each node has an AS
// number of its own, as a router announces no route to a peer whose number is in its path.
package fabric

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

const (
	racks, spines = 2, 2
	// nodeLink is a node's link to its leaf.
	nodeLink = "fabric0"
	// The AS numbers of the first node, which those of the others follow, and of spines, which those of leaves follow.
	firstASN, spineASN = 64513, 65000
)

// Router is a router of the fabric.
type Router struct {
	Name string
	ASN  uint32
	// ID is the router's ID, an address on its loopback link.
	ID    netip.Addr
	Links []Link
}

// Link is a link of a router to a namespace with another router or a node.
type Link struct {
	// Name is the link's at the router: that of the other end's namespace.
	Name string
	// Peer is the link's name at the other end, and ASN the AS number there.
	Peer string
	ASN  uint32
	// below: the other end is below this router, which creates the link.
	below bool
}

// Routers returns the routers of a layout's fabric; none if it has no fabric.
func Routers(l layout.Layout) []Router {
	if l.Spec.Fabric == "" {
		return nil
	}
	var out []Router
	add := func(name string, asn uint32) *Router {
		out = append(out, Router{Name: name, ASN: asn, ID: netip.AddrFrom4([4]byte{172, 19, 0, byte(len(out) + 1)})})
		return &out[len(out)-1]
	}
	for rack := range racks {
		r := add(fmt.Sprintf("leaf%d", rack+1), leafASN(rack))
		for i, n := range l.Nodes {
			if i%racks == rack {
				r.Links = append(r.Links, Link{Name: n.Name, Peer: nodeLink, ASN: nodeASN(i), below: true})
			}
		}
		for s := range spines {
			r.Links = append(r.Links, Link{Name: fmt.Sprintf("spine%d", s+1), Peer: r.Name, ASN: spineASN})
		}
	}
	for s := range spines {
		r := add(fmt.Sprintf("spine%d", s+1), spineASN)
		for rack := range racks {
			r.Links = append(r.Links, Link{Name: fmt.Sprintf("leaf%d", rack+1), Peer: r.Name, ASN: leafASN(rack), below: true})
		}
	}
	return out
}

func nodeASN(i int) uint32 { return firstASN + uint32(i) }

func leafASN(rack int) uint32 { return spineASN + 1 + uint32(rack) }

// Manifests returns the objects of the router's own cluster: itself, its peers, and that it passes on all routes.
func (r Router) Manifests() string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Node
metadata:
  name: %s
  annotations: {projectcalico.org/ASNumber: "%d"}
status:
  addresses: [{type: InternalIP, address: %s}]
---
apiVersion: weft.dev/v1alpha1
kind: BGPFilter
metadata: {name: transit}
spec:
  exportV4: [{action: Accept}]
  exportV6: [{action: Accept}]
`, r.Name, r.ASN, r.ID)
	for _, l := range r.Links {
		b.WriteString(peer(l.Name, "", l.Name, l.ASN, ", filters: [transit]"))
	}
	return b.String()
}

// NodeManifests returns the objects of the lab's cluster with which nodes peer with their leaves.
func NodeManifests(l layout.Layout) string {
	var b strings.Builder
	b.WriteString(`apiVersion: weft.dev/v1alpha1
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false}
`)
	for i, n := range l.Nodes {
		local := fmt.Sprintf(", localASNumber: %d", nodeASN(i))
		b.WriteString(peer("fabric-"+n.Name, n.Name, nodeLink, leafASN(i%racks), local))
	}
	return b.String()
}

func peer(name, node, link string, asn uint32, more string) string {
	if node != "" {
		more = ", node: " + node + more
	}
	return fmt.Sprintf(`---
apiVersion: weft.dev/v1alpha1
kind: BGPPeer
metadata: {name: %s}
spec: {interface: %s, asNumber: %d%s}
`, name, link, asn, more)
}

// Create creates the routers' namespaces, and all links. The nodes' namespaces must exist; at returns the path of one.
func Create(ctx context.Context, l layout.Layout, at func(name string) string) error {
	routers := Routers(l)
	for _, r := range routers {
		ns, err := netns.New(at(r.Name))
		if err != nil {
			return err
		}
		if err := ns.Close(); err != nil {
			return err
		}
	}
	for _, r := range routers {
		if err := r.create(ctx, at); err != nil {
			return fmt.Errorf("router %s: %w", r.Name, err)
		}
	}
	return nil
}

// create configures the router's namespace, and creates its links to what is below it.
func (r Router) create(ctx context.Context, at func(name string) string) error {
	ns, conn, err := open(at(r.Name))
	if err != nil {
		return err
	}
	defer func() { _, _ = conn.Close(), ns.Close() }()
	f := state.Fragment{Owner: "lab/" + r.Name}
	f.Host.Links = []state.Link{{Name: "lo", Up: state.On()}}
	f.Host.Addrs = []state.Addr{{Link: "lo", Prefix: netip.PrefixFrom(r.ID, 32)}}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		f.Host.Sysctls = append(f.Host.Sysctls, state.Sysctl{Name: name, Value: "1"})
	}
	for _, name := range []string{"all", "default"} {
		f.Host.Sysctls = append(f.Host.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + name + "/rp_filter", Value: "0"})
	}
	if err := (kernel.Spaces{Host: conn}).Apply(ctx, f); err != nil {
		return err
	}
	for _, l := range r.Links {
		if !l.below {
			continue
		}
		if err := l.create(ctx, kernel.Spaces{Host: conn}, at(l.Name)); err != nil {
			return fmt.Errorf("link to %s: %w", l.Name, err)
		}
	}
	return nil
}

// create creates the link from the router, the host space, to the namespace at a path.
func (l Link) create(ctx context.Context, spaces kernel.Spaces, path string) error {
	ns, conn, err := open(path)
	if err != nil {
		return err
	}
	defer func() { _, _ = conn.Close(), ns.Close() }()
	f := state.Fragment{Owner: "lab/fabric/" + l.Name}
	end := func(name string, space state.SpaceName, other string) []state.Link {
		return []state.Link{{Name: name, Kind: state.Veth, Up: state.On(), Peer: &state.Peer{Space: space, Name: other}}}
	}
	f.Host.Links, f.Pod.Links = end(l.Name, state.Pod, l.Peer), end(l.Peer, state.Host, l.Name)
	spaces.Pod, spaces.PodNS = conn, ns
	return spaces.Apply(ctx, f)
}

// open opens a namespace, and a connection to its part of the kernel.
func open(path string) (*netns.NS, *kernel.Conn, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, nil, err
	}
	conn, err := kernel.Dial(ns)
	if err != nil {
		_ = ns.Close()
		return nil, nil, err
	}
	return ns, conn, nil
}
