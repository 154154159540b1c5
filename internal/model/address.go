// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
	"strings"
)

// AddressPool is a set of addresses from which nodes claim blocks.
type AddressPool struct {
	Name    string          `json:"name"`
	Regions []AddressRegion `json:"regions,omitempty"`
	// Cooldown is how many seconds pass before a released address is allocated again; 0 is the engine's default.
	Cooldown int `json:"cooldownSeconds,omitempty"`
	// Reserved are addresses that are not allocated from any block.
	Reserved []ReservedAddress `json:"reserved,omitempty"`
	// Excluded are ranges of the pool that are not allocated from; addresses already in use stay.
	Excluded []ExcludedRange `json:"excluded,omitempty"`
	// ExhaustedOn are the nodes that found the pool exhausted: other nodes release the blocks that they can spare.
	ExhaustedOn []string `json:"wanted,omitempty"`

	// AssignmentMode is empty for a pool of networks whose configurations name it. Otherwise it is a pool of the cluster's
	// network, and the fields below have a meaning.
	AssignmentMode AssignmentMode `json:"assignmentMode,omitempty"`
	// NodeSelector and NamespaceSelector select the nodes, and the namespaces of pods, for which addresses are allocated
	// automatically: texts for ParseExpression.
	NodeSelector      string `json:"nodeSelector,omitempty"`
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	// AllowedUses are the purposes of the addresses; empty means pods and tunnels.
	AllowedUses []AddressUse `json:"allowedUses,omitempty"`
	// Disabled: no further addresses are allocated; those in use stay.
	Disabled bool `json:"disabled,omitempty"`
	// Encapsulation is how packets to pods of other nodes are encapsulated.
	Encapsulation Encapsulation `json:"encapsulation,omitzero"`
	// NATOutgoing: packets from the pool to addresses outside all pools are masqueraded.
	NATOutgoing bool `json:"natOutgoing,omitempty"`
	// DisableBGPExport: nodes do not announce prefixes of the pool by BGP.
	DisableBGPExport bool `json:"disableBGPExport,omitempty"`
	// MaxBlocks limits the blocks of the pool that a node may have; 0 is no limit.
	MaxBlocks int `json:"maxBlocksPerNode,omitempty"`
	// Created is the object's creation time, in seconds since 1970: of two pools that overlap, the older one is used.
	Created int64 `json:"created,omitempty"`
	// Deleted: the object has a deletion timestamp, and its finalizer waits for the release of the last block.
	Deleted bool `json:"deleted,omitempty"`
}

// AssignmentMode is how a pool of the cluster's network is chosen.
type AssignmentMode string

// The modes.
const (
	// AssignAutomatic: for every pod whose node and namespace the pool selects.
	AssignAutomatic AssignmentMode = "Automatic"
	// AssignManual: only for pods that request this pool.
	AssignManual AssignmentMode = "Manual"
)

// AddressUse is the purpose of an address.
type AddressUse string

// The uses.
const (
	UseWorkload     AddressUse = "Workload"
	UseTunnel       AddressUse = "Tunnel"
	UseLoadBalancer AddressUse = "LoadBalancer"
)

// Encapsulation is how packets between pods of two nodes are encapsulated, and between which nodes.
type Encapsulation struct {
	Kind EncapsulationKind `json:"kind,omitempty"`
	Mode EncapsulationMode `json:"when,omitempty"`
}

// EncapsulationKind is the tunnel protocol; the zero value leaves it to the node's configuration.
type EncapsulationKind string

// The kinds.
const (
	EncapsulationNone  EncapsulationKind = "none"
	EncapsulationVXLAN EncapsulationKind = "vxlan"
	EncapsulationIPIP  EncapsulationKind = "ipip"
)

// EncapsulationMode is between which nodes packets are encapsulated; the zero value is Always.
type EncapsulationMode string

// The modes.
const (
	EncapsulateAlways EncapsulationMode = "Always"
	// EncapsulateCrossSubnet: between nodes whose underlays are different subnets.
	EncapsulateCrossSubnet EncapsulationMode = "CrossSubnet"
)

// None reports whether the pool itself does not ask for encapsulation.
func (e Encapsulation) None() bool { return e.Kind == "" || e.Kind == EncapsulationNone }

// IsClusterPool reports whether this is a pool of the cluster's network.
func (p AddressPool) IsClusterPool() bool { return p.AssignmentMode != "" }

// Allows reports whether addresses of the pool may have this use.
func (p AddressPool) Allows(use AddressUse) bool {
	if len(p.AllowedUses) == 0 {
		return use == UseWorkload || use == UseTunnel
	}
	return slices.Contains(p.AllowedUses, use)
}

// ForServices reports whether Services of type LoadBalancer get addresses of the pool. Pods and tunnels get none of it:
// their nodes would claim its blocks.
func (p AddressPool) ForServices() bool {
	return p.IsClusterPool() && p.Allows(UseLoadBalancer) && !p.Allows(UseWorkload) && !p.Allows(UseTunnel)
}

// AddressRegion is a part of a pool that is divided into blocks of one size. Regions of a pool do not overlap, and an
// existing region is immutable: two nodes must never divide it in different ways.
type AddressRegion struct {
	CIDR netip.Prefix `json:"cidr"`
	// BlockSize is the prefix length of a block.
	BlockSize int `json:"blockSize"`
}

// ReservedAddress is an address that something else uses: another IPAM, a host that is no pod.
type ReservedAddress struct {
	Addr netip.Addr `json:"address"`
	// Owner is "namespace/name" of the pod that uses the address, or any text.
	Owner string `json:"for,omitempty"`
	// ContainerID and IfName name the attachment that uses it, if one does.
	ContainerID string `json:"containerID,omitempty"`
	IfName      string `json:"ifName,omitempty"`
	// Source is the program that allocated it, empty if an operator reserved it.
	Source string `json:"by,omitempty"`
}

// The sources of addresses that an import took over from another network.
const (
	ByCalico    = "calico"
	ByHostLocal = "host-local"
)

// ExcludedRange is a part of a pool that is not allocated to pods.
type ExcludedRange struct {
	CIDR netip.Prefix `json:"cidr"`
	// Reason describes what it is reserved for, Source is the reservation that it comes from.
	Reason string `json:"for,omitempty"`
	Source string `json:"by,omitempty"`
}

// AddressBlock is the affinity of a CIDR to one node: the node claims it by the creation of the object.
type AddressBlock struct {
	Pool string       `json:"pool"`
	CIDR netip.Prefix `json:"cidr"`
	Node string       `json:"node"`
	// MachineID distinguishes the host that has the block from another host with the same node name; empty if unknown.
	MachineID string `json:"machine,omitempty"`
	// Claim is a random number that changes each time a node claims the block. By it a late request of an earlier claim is
	// recognized.
	Claim string `json:"claim"`
	// Requested are addresses of the block that other nodes request, with the names of these nodes.
	Requested map[netip.Addr]string `json:"asked,omitempty"`
	// Lent are addresses that the block's node lends, each with its borrower ("node/claim"); an empty one is free for the
	// first node that borrows it.
	Lent map[netip.Addr]string `json:"ceded,omitempty"`
	// Granted are addresses that the controller assigned to a node, each with the node and the address claim ("node for
	// claim").
	Granted map[netip.Addr]string `json:"granted,omitempty"`
	// Orphaned: the controller found that the block's node does not exist any more. Another node may claim the block.
	Orphaned bool `json:"orphaned,omitempty"`
}

// PoolRequest is a request of an agent to the controller, because only the controller writes pools.
type PoolRequest struct {
	Node string `json:"node"`
	// Pool is to have a region CIDR with blocks for this number of Addresses. Without a pool, the controller is to import
	// Calico's pools.
	Pool      string       `json:"pool,omitempty"`
	CIDR      netip.Prefix `json:"cidr,omitzero"`
	Addresses int          `json:"addresses,omitempty"`
	// Network is whereabouts' network_name of the range, if it has one.
	Network string `json:"network,omitempty"`
	// Claim, instead of a pool, is the AddressClaim of a VM ("namespace/name") that is to lose the addresses that are in
	// no pool any more.
	Claim string `json:"claim,omitempty"`
	// Addr, of the block CIDR of the pool, is to be granted to Node for Claim, which Pod ("namespace/name") uses there;
	// IPAM: the claim is an IPAMClaim.
	Addr netip.Addr `json:"address,omitzero"`
	Pod  string     `json:"pod,omitempty"`
	IPAM bool       `json:"ipam,omitempty"`
}

// MaxBlockBits limits the size of a block: it has at most 2 to this power addresses.
const MaxBlockBits = 8

// BlockSize returns the prefix length of the blocks of a region with this number of usable addresses: large enough that
// a node seldom claims one, small enough that a pool has blocks for many nodes.
func BlockSize(region netip.Prefix, usable int) int {
	const usual, blocks = 6, 32 // 64 addresses in a block; 32 blocks where 64 addresses are too many
	bits := 0
	for bits < usual && usable>>(bits+1) >= blocks {
		bits++
	}
	return max(region.Bits(), region.Addr().BitLen()-bits)
}

// Holder returns the node that may allocate an address of the block: the block's own, or the one that borrowed it;
// empty while a lent address is free.
func (b AddressBlock) Holder(a netip.Addr) string {
	borrower, lent := b.Lent[a]
	if !lent {
		return b.Node
	}
	node, _, _ := strings.Cut(borrower, "/")
	return node
}

// PoolFamilies returns the IP families (4, 6) of the pools for which choose returns true, sorted.
func PoolFamilies(pools []AddressPool, choose func(AddressPool) bool) []int {
	var out []int
	for _, p := range pools {
		if !choose(p) {
			continue
		}
		for _, r := range p.Regions {
			family := 4
			if r.CIDR.Addr().Is6() {
				family = 6
			}
			if !slices.Contains(out, family) {
				out = append(out, family)
			}
		}
	}
	slices.Sort(out)
	return out
}
