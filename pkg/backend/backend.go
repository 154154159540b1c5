// SPDX-License-Identifier: Apache-2.0

// Package backend has the types to write a backend of the mesh outside weft's repository: how packets get from node to
// node, as vxlan and host-gw do. A program with a backend of its own is a few lines (package agent):
//
//	func main() { os.Exit(agent.Run("v1.0.0", myBackend())) }
//
// The program is weft-agent with one more backend: network.encapsulation takes its name, and `weft lab up --agent PROGRAM
// --encapsulation NAME` runs it on one host. docs/tasks/write-a-backend.md walks through an example.
//
// # Backends
//
// A Backend is a name and pure functions. From what the cluster's nodes publish and what the kernel answered they compute
// the links, addresses, routes, neighbors, rules and tables that should exist. They change nothing: weft creates these
// objects, compares them with the kernel whenever either changes, repairs them, and removes what is no longer planned. So
// a backend is tested without a kernel, and cannot leak.
//
// # Stability
//
// The names here are aliases of weft's own types. They change as little as possible before 1.0; CHANGELOG.md lists the
// changes.
package backend

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// The parts of a backend.
type (
	// Backend is one way to forward packets between nodes.
	Backend = mesh.Backend
	// Planner is the input of its functions: the node, its underlay, the observed state of the kernel.
	Planner = mesh.Planner
	// Part is their output: what should exist in the node's network namespace, and the MTU.
	Part = mesh.BackendState
	// Problem is the reason why a peer is unreachable, with a hint.
	Problem = mesh.Problem
	// Underlay is the interface to the other nodes.
	Underlay = mesh.Underlay
	// Tunnel is a tunnel in user space, for backends without a kernel device.
	Tunnel = mesh.Tunnel
	// Config is the configuration of the node's mesh.
	Config = mesh.Config
	// Node is a node of the cluster, from the datastore.
	Node = model.Node
	// Published is what a node publishes for its backend.
	Published = model.Published
)

// These are the kernel objects of a Part. Unset fields are not compared with the kernel.
type (
	// Space is the state of one network namespace.
	Space = state.Space
	// Link is an interface.
	Link = state.Link
	// Kind is the kind of a link: vxlan, dummy ….
	Kind = state.Kind
	// MAC is a MAC address.
	MAC = state.MAC
	// VXLANAttrs are the attributes of a link of kind VXLAN.
	VXLANAttrs = state.VXLANAttrs
	// IPIPAttrs are the attributes of a link of kind IPIP.
	IPIPAttrs = state.IPIPAttrs
	// TunAttrs are the attributes of a link of kind Tun.
	TunAttrs = state.TunAttrs
	// VLANAttrs are the attributes of a link of kind VLAN.
	VLANAttrs = state.VLANAttrs
	// Parent is the parent interface of a link.
	Parent = state.Parent
	// Addr is an address of a link.
	Addr = state.Addr
	// Route is a route.
	Route = state.Route
	// Rule is a policy routing rule.
	Rule = state.Rule
	// Neigh is a permanent neighbor entry.
	Neigh = state.Neigh
	// FDB is an entry of a device's forwarding database.
	FDB = state.FDB
	// Sysctl is a setting below /proc/sys.
	Sysctl = state.Sysctl
	// Qdisc is a queueing discipline of a link.
	Qdisc = state.Qdisc
	// Table is an nft table, or a part of a shared one.
	Table = state.Table
	// Chain is a chain of a table.
	Chain = state.Chain
	// NftRule is a rule of a chain, in nft syntax.
	NftRule = state.NftRule
	// Set is a set or a map of a table.
	Set = state.Set
	// Element is an element of a set.
	Element = state.Element
	// Effect is an action after a change.
	Effect = state.Effect
	// Query is a query of the kernel's state.
	Query = state.Query
	// Answer is the result of a query.
	Answer = state.Answer
)

// These are the kinds of links that weft can create.
const (
	Bridge    = state.Bridge
	Dummy     = state.Dummy
	VLAN      = state.VLAN
	VXLAN     = state.VXLAN
	Tun       = state.Tap
	IPIP      = state.IPIP
	Wireguard = state.Wireguard
	Veth      = state.Veth
)

const (
	// Mark is the alias of a backend's own links, by which they are found and removed when they are no longer planned.
	Mark = mesh.Mark
	// Protocol is the protocol of the mesh's routes; routes of other protocols are not changed.
	Protocol = mesh.Protocol
)

// Data is what a node publishes for a backend over a family (4 or 6): what the other side's Backend.Publish said;
// empty when it publishes nothing, or for another backend.
func Data(n Node, backend string, family int) string { return mesh.Data(n, backend, family) }

// On returns true for a field that may be unset.
func On() *bool { return state.On() }

// Off returns false for a field that may be unset.
func Off() *bool { return state.Off() }
