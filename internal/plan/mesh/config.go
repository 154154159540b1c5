// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
)

// Config is the configuration of a mesh.
type Config struct {
	// Backend is the name of this node's backend; empty is host-gw.
	Backend string
	// Backends is the table of known backends; empty is Backends(). Each peer is reached by the one that it publishes.
	Backends []Backend
	VXLAN    VXLAN
	// VTEPSeed is random text from which self's first VtepMAC is derived. Without it, and if a node publishes none, the
	// VtepMAC is derived from the node's name.
	VTEPSeed string
	// PublishVTEPOnly: self publishes Topology.VTEP only, not Topology.Publish.
	PublishVTEPOnly bool
	// These are the keys of the other backends.
	UDP       UDP
	IPIP      IPIP
	WireGuard WireGuard
	Extension Extension
	// Networks are the prefixes of all nodes' pods. If there are any, a family without one is disabled, and a podCIDR
	// outside of them is not routed.
	Networks []netip.Prefix
	// Interface is the link to the other nodes; empty is the one with the node's address.
	Interface string
	// Learned is the runtime data of backends in user space (Runner.Learn), by backend name.
	Learned map[string]string
	// BadChecksums are devices with broken checksum offload, as the reconciler detected: the kernel computes the
	// checksums.
	BadChecksums []string
	// Masquerade are the prefixes of all nodes' pods: packets of pods to other destinations are masqueraded. Empty: pods
	// keep their addresses.
	Masquerade []netip.Prefix
	// NoMasquerade are further destinations for which pods keep their addresses.
	NoMasquerade []netip.Prefix
	// PreservePorts: masquerading keeps the pod's source port if it is free, instead of choosing a random one.
	PreservePorts bool
	// Pools: the blocks of the cluster's pools are routed to their nodes, with each pool's encapsulation. Nodes' podCIDRs
	// within a pool are not routed.
	Pools bool
	// Unmanaged are the prefixes of the addresses in model.Node.Unmanaged that are routed. An address of a pool, of a
	// podCIDR or of a node is never routed to another node.
	Unmanaged []netip.Prefix
	// DSCPMark are self's pods whose packets to the outside of the cluster bear a code point.
	DSCPMarks []DSCPMark
	// TunnelAddrs are the addresses of self's tunnel devices, at most one for each family; the default is the first of
	// self's podCIDR.
	TunnelAddrs []netip.Addr
	// BridgePods: self may still have pods on a bridge, from its configuration before; the node answers ARP and NDP there
	// for routed pods.
	BridgePods bool
	// RoutedAddrs are the IPv6 addresses of routed pods; needed only if Topology.BridgedFamilies has IPv6.
	RoutedAddrs []netip.Addr
	// Relays accept packets for VMs that have just migrated to self from the nodes where they ran before.
	Relays []Relay
	// Blackhole: packets to an unused address of self's podCIDRs are dropped instead of following the default route.
	Blackhole bool
}

func (c Config) badChecksums(link string) bool { return slices.Contains(c.BadChecksums, link) }
