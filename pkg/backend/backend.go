// SPDX-License-Identifier: Apache-2.0

// Package backend is for writing a mesh back end of your own, outside of weft's repository: a way in which packets get
// from node to node, as vxlan and host-gw are. A program with it is a few lines (package agent beside this one):
//
//	func main() { os.Exit(agent.Run("v1.0.0", myBackend())) }
//
// It is weft-agent with one back end more: network.encapsulation takes its name, and `weft lab up --agent PROGRAM
// --encapsulation NAME` shows it on one machine. docs/backends.md walks through an example.
//
// # What a back end is
//
// A Backend is a name and pure functions. They are given what the cluster's nodes say and what the kernel answered, and
// say which links, addresses, routes, neighbors, rules and tables should be there. They change nothing: weft makes what
// they say, compares it with the kernel whenever either changes, repairs it, and takes it away when nobody says it any
// more. So a back end is tested without a kernel, and cannot leak.
//
// # Stability
//
// The names here are weft's own, under other names: they change as little as they can before 1.0, and CHANGELOG.md says
// when they do.
package backend

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// What a back end is made of.
type (
	// Backend is one way to bring packets from node to node.
	Backend = mesh.Backend
	// Planner is what its functions plan by: the node that is planned for, its underlay, what the kernel answered.
	Planner = mesh.Planner
	// Part is what they say: what the node's own namespace should hold, and the largest packet that fits through.
	Part = mesh.Part
	// Problem is why a peer is not reached, with the way out.
	Problem = mesh.Problem
	// Underlay is the link to the other nodes.
	Underlay = mesh.Underlay
	// Tunnel is what a process in user space must keep where the kernel has no device.
	Tunnel = mesh.Tunnel
	// Config is how the node's mesh is configured.
	Config = mesh.Config
	// Node is a node of the cluster, as its objects say.
	Node = model.Node
	// Published is what a node tells the others for its back end.
	Published = model.Published
)

// Things of the kernel that a Part is made of. Unset fields are not compared with the kernel.
type (
	// Space is what one namespace holds.
	Space = state.Space
	// Link is an interface.
	Link = state.Link
	// Kind is what a link is: vxlan, dummy ….
	Kind = state.Kind
	// MAC is a hardware address.
	MAC = state.MAC
	// VxlanAttrs is what a link of kind Vxlan has beside.
	VxlanAttrs = state.VxlanAttrs
	// IPIPAttrs is what a link of kind IPIP has beside.
	IPIPAttrs = state.IPIPAttrs
	// TunAttrs is what a link of kind Tun has beside.
	TunAttrs = state.TunAttrs
	// VlanAttrs is what a link of kind Vlan has beside.
	VlanAttrs = state.VlanAttrs
	// Parent is the link that another one is made upon.
	Parent = state.Parent
	// Addr is an address of a link.
	Addr = state.Addr
	// Route is a route.
	Route = state.Route
	// Rule is a rule of policy routing.
	Rule = state.Rule
	// Neigh is a permanent neighbor entry.
	Neigh = state.Neigh
	// FDB is an entry of a device's forwarding table.
	FDB = state.FDB
	// Sysctl is a setting below /proc/sys.
	Sysctl = state.Sysctl
	// Qdisc is a queueing discipline of a link.
	Qdisc = state.Qdisc
	// Table is an nft table, or a part of a shared one.
	Table = state.Table
	// Chain is a chain of a table.
	Chain = state.Chain
	// NftRule is a rule of a chain, in the words of nft.
	NftRule = state.NftRule
	// Set is a set or a map of a table.
	Set = state.Set
	// Element is an element of a set.
	Element = state.Element
	// Effect is what happens once when something has changed.
	Effect = state.Effect
	// Query is a question to the kernel.
	Query = state.Query
	// Answer is what the kernel answered.
	Answer = state.Answer
)

// The kinds of links that weft's driver makes.
const (
	Bridge    = state.Bridge
	Dummy     = state.Dummy
	Vlan      = state.Vlan
	Vxlan     = state.Vxlan
	Tun       = state.Tap
	IPIP      = state.IPIP
	Wireguard = state.Wireguard
	Veth      = state.Veth
)

const (
	// Mark is the alias of a back end's own links, by which they are found again when nobody wants them any more.
	Mark = mesh.Mark
	// Protocol is that of the mesh's routes in the kernel's tables; other programs' routes stay untouched.
	Protocol = mesh.Protocol
)

// Data is what a node publishes for a back end over a family (4 or 6): what the other side's Backend.Publish said;
// empty when it publishes nothing, or for another back end.
func Data(n Node, backend string, family int) string { return mesh.Data(n, backend, family) }

// On and Off are values for fields that may be unset.
func On() *bool { return state.On() }

// Off is On's opposite.
func Off() *bool { return state.Off() }
