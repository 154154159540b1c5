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
	// Cooldown is how long an address rests after it was released, in seconds; 0 leaves it to the engine.
	Cooldown int `json:"cooldownSeconds,omitempty"`
	// Reserved are addresses that no block gives.
	Reserved []ReservedAddress `json:"reserved,omitempty"`
	// Excluded are parts of the pool of which no block gives anything, beyond what it has given already.
	Excluded []ExcludedRange `json:"excluded,omitempty"`
	// Wanted are the nodes that found the pool exhausted: whoever has addresses to spare gives them back.
	Wanted []string `json:"wanted,omitempty"`

	// AssignmentMode says whose the addresses are. Without one the pool is for networks whose configurations name it. With
	// one it is a pool of the cluster's network, and the fields below have a meaning.
	AssignmentMode AssignmentMode `json:"assignmentMode,omitempty"`
	// NodeSelector and NamespaceSelector say on which nodes, and to pods of which namespaces, addresses are given that
	// nobody asked of this pool: texts for ParseExpression.
	NodeSelector      string `json:"nodeSelector,omitempty"`
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	// AllowedUses are what the addresses are for; empty means pods and tunnels.
	AllowedUses []AddressUse `json:"allowedUses,omitempty"`
	// Disabled: nobody gets further addresses; those that are given stay.
	Disabled bool `json:"disabled,omitempty"`
	// Encapsulation is how packets to pods of other nodes travel.
	Encapsulation Encapsulation `json:"encapsulation,omitzero"`
	// NATOutgoing: packets to addresses outside all pools leave under the node's address.
	NATOutgoing bool `json:"natOutgoing,omitempty"`
	// MaxBlocks is how many blocks of the pool a node may have; 0 sets no bound.
	MaxBlocks int `json:"maxBlocksPerNode,omitempty"`
	// Created is when the object came to be, in seconds since 1970: of two pools with the same addresses the older one
	// gives them.
	Created int64 `json:"created,omitempty"`
	// Deleted: the object is about to go, and waits until its last block is back.
	Deleted bool `json:"deleted,omitempty"`
}

// AssignmentMode says how a pool of the cluster's network is chosen.
type AssignmentMode string

// The modes.
const (
	// AssignAutomatic: by every pod whose node and namespace the pool selects.
	AssignAutomatic AssignmentMode = "Automatic"
	// AssignManual: only by who asks for this pool.
	AssignManual AssignmentMode = "Manual"
)

// AddressUse is what an address is for.
type AddressUse string

// The uses.
const (
	UseWorkload     AddressUse = "Workload"
	UseTunnel       AddressUse = "Tunnel"
	UseLoadBalancer AddressUse = "LoadBalancer"
)

// Encapsulation is how packets between pods of two nodes travel.
type Encapsulation struct {
	Kind EncapsulationKind `json:"kind,omitempty"`
	When EncapsulationWhen `json:"when,omitempty"`
}

// EncapsulationKind is into what packets are wrapped; the zero value leaves it to the node's configuration.
type EncapsulationKind string

// The kinds.
const (
	EncapsulationNone  EncapsulationKind = "none"
	EncapsulationVXLAN EncapsulationKind = "vxlan"
	EncapsulationIPIP  EncapsulationKind = "ipip"
)

// EncapsulationWhen is between which nodes; the zero value is Always.
type EncapsulationWhen string

// The times.
const (
	EncapsulateAlways EncapsulationWhen = "Always"
	// EncapsulateCrossSubnet: between nodes whose underlays are different subnets.
	EncapsulateCrossSubnet EncapsulationWhen = "CrossSubnet"
)

// None tells whether the pool itself wraps nothing.
func (e Encapsulation) None() bool { return e.Kind == "" || e.Kind == EncapsulationNone }

// OfCluster tells whether this is a pool of the cluster's network.
func (p AddressPool) OfCluster() bool { return p.AssignmentMode != "" }

// Allows tells whether addresses of the pool may be used so.
func (p AddressPool) Allows(use AddressUse) bool {
	if len(p.AllowedUses) == 0 {
		return use == UseWorkload || use == UseTunnel
	}
	return slices.Contains(p.AllowedUses, use)
}

// AddressRegion is a part of a pool that is cut into blocks of one size. Regions of a pool do not overlap, and one that
// is there does not change: two nodes must never cut in different ways.
type AddressRegion struct {
	CIDR netip.Prefix `json:"cidr"`
	// BlockSize is the prefix length of a block.
	BlockSize int `json:"blockSize"`
}

// ReservedAddress is an address that somebody else has: another IPAM, a machine that is no pod.
type ReservedAddress struct {
	Addr netip.Addr `json:"address"`
	// For says whose it is: "namespace/name" of a pod, or any words.
	For string `json:"for,omitempty"`
	// ContainerID and IfName name the attachment that has it, where it is one.
	ContainerID string `json:"containerID,omitempty"`
	IfName      string `json:"ifName,omitempty"`
	// By is the program that gave it, empty for people.
	By string `json:"by,omitempty"`
}

// Who reserved addresses that an import took over from another network.
const (
	ByCalico    = "calico"
	ByHostLocal = "host-local"
)

// ExcludedRange is a part of a pool that is not given to pods.
type ExcludedRange struct {
	CIDR netip.Prefix `json:"cidr"`
	// For says what it is for, By which reservation it comes from.
	For string `json:"for,omitempty"`
	By  string `json:"by,omitempty"`
}

// AddressBlock is the claim of one node on the addresses of a CIDR: that the object exists is the claim.
type AddressBlock struct {
	Pool string       `json:"pool"`
	CIDR netip.Prefix `json:"cidr"`
	Node string       `json:"node"`
	// Machine tells the machine that has the block from another one that runs under the same name; empty where it did not
	// say.
	Machine string `json:"machine,omitempty"`
	// Claim is a number that is new each time a node takes the block into use. It tells a late word of an earlier claim
	// from one of this claim.
	Claim string `json:"claim"`
	// Asked are addresses of the block that other nodes ask for, with these nodes.
	Asked map[netip.Addr]string `json:"asked,omitempty"`
	// Ceded are addresses that the block's node gave away, each with its holder ("node/claim"); an empty one is free for
	// whoever takes it first.
	Ceded map[netip.Addr]string `json:"ceded,omitempty"`
	// Granted are addresses that the controller lets a node take, each with the node and the claim in whose name ("node
	// for claim").
	Granted map[netip.Addr]string `json:"granted,omitempty"`
	// Orphaned: the controller found that the block's node does not exist any more. Another node may take the block over.
	Orphaned bool `json:"orphaned,omitempty"`
}

// PoolRequest is what the agent of a node asks the controller for, which alone writes pools.
type PoolRequest struct {
	Node string `json:"node"`
	// Pool is to have CIDR, which is cut for so many Addresses. Without a pool, Calico's pools are to be followed.
	Pool      string       `json:"pool,omitempty"`
	CIDR      netip.Prefix `json:"cidr,omitzero"`
	Addresses int          `json:"addresses,omitempty"`
	// Network is whereabouts' network_name of the range, if it has one.
	Network string `json:"network,omitempty"`
	// Claim, in the place of a pool, is the AddressClaim of a virtual machine ("namespace/name") that is to lose addresses
	// that no pool gives any more.
	Claim string `json:"claim,omitempty"`
	// Addr, of the block CIDR of the pool, is to be granted to Node in the name of Claim, which Pod ("namespace/name")
	// carries there; IPAM: the claim is an IPAMClaim.
	Addr netip.Addr `json:"address,omitzero"`
	Pod  string     `json:"pod,omitempty"`
	IPAM bool       `json:"ipam,omitempty"`
}

// MostBlockBits bounds a block: 2 to this power is the most addresses that one can have.
const MostBlockBits = 8

// BlockSize is the prefix length of the blocks of a region of which so many addresses are for use: large enough that a
// node seldom claims one, small enough that a pool has blocks for many nodes.
func BlockSize(region netip.Prefix, usable int) int {
	const usual, blocks = 6, 32 // 64 addresses in a block; 32 blocks where 64 addresses are too many
	bits := 0
	for bits < usual && usable>>(bits+1) >= blocks {
		bits++
	}
	return max(region.Bits(), region.Addr().BitLen()-bits)
}

// Holder is the node that has an address of the block: the block's own, or the one that it was given away to; empty
// while it is free for whoever takes it first.
func (b AddressBlock) Holder(a netip.Addr) string {
	with, ceded := b.Ceded[a]
	if !ceded {
		return b.Node
	}
	node, _, _ := strings.Cut(with, "/")
	return node
}

// PoolFamilies are the families (4, 6) of those pools that are chosen, sorted.
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
