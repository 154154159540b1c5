// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
)

// Config is how a mesh is built.
type Config struct {
	// Backend is how packets get from node to node; empty is host-gw.
	Backend string
	// Backends is the table of those that may be used; empty is Backends(). Each peer is reached by the one that it
	// publishes.
	Backends []Backend
	Vxlan    Vxlan
	// VtepSeed is random text for self's VtepMAC where self publishes it and has not published one yet. Without it, and
	// where nodes publish nothing, a VtepMAC comes from the node's name.
	VtepSeed string
	// VtepAlone tells that of what self could publish others are told Topology.Vtep alone.
	VtepAlone bool
	// These are the keys of the other back ends.
	UDP       UDP
	IPIP      IPIP
	Wireguard Wireguard
	Extension Extension
	// Networks are the prefixes that all nodes' pods are in. Where there are any, a family without one is off, and a
	// podCIDR outside of them is not routed.
	Networks []netip.Prefix
	// Interface is the link to the other nodes; empty is the one that holds the node's address.
	Interface string
	// Learned is what back ends in user space have found out (Runner.Learn), by their names.
	Learned map[string]string
	// BadChecksums are devices through which packets arrive broken unless the kernel computes their checksums itself: the
	// reconciler has seen it.
	BadChecksums []string
	// Masquerade are the prefixes of all nodes' pods: what a pod sends to anywhere else has its node's address. None: it
	// keeps its own.
	Masquerade []netip.Prefix
	// Keep are further prefixes where the receiver sees the pod's own address.
	Keep []netip.Prefix
	// PortsInOrder has masquerading take the pod's own port where it is free, instead of a random one.
	PortsInOrder bool
	// Pools has the blocks of the cluster's pools routed to their nodes, each as its pool says. Where the nodes' prefixes
	// lie in a pool they are not routed: blocks are what its addresses come in.
	Pools bool
	// Brought are the prefixes of which nodes may lead single addresses to their pods that no IPAM gave
	// (model.Node.Brought). What a pool, a prefix of the cluster or a node has is never led anywhere else.
	Brought []netip.Prefix
	// Marked are self's pods whose packets to the outside of the cluster bear a code point.
	Marked []Marked
	// TunnelAddrs are self's own addresses at its tunnels' ends, at most one a family; without one of a family it is the
	// first of self's prefix.
	TunnelAddrs []netip.Addr
	// Beside expects pods on a bridge of self's prefixes, which was the design before: it answers them for those that are
	// routed.
	Beside bool
	// Routed are the addresses of the pods that are, of IPv6: only where Topology.Bridged tells that they matter.
	Routed []netip.Addr
	// Relays let packets for machines that have just migrated to self come by way of where they were.
	Relays []Relay
	// Blackhole refuses what is sent to an address of self's own prefixes that no pod has, instead of sending it
	// elsewhere.
	Blackhole bool
}

func (c Config) badChecksums(link string) bool { return slices.Contains(c.BadChecksums, link) }
