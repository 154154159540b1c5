// SPDX-License-Identifier: Apache-2.0

// Package plugin plans CNI plugins, with one planner per plugin type. A planner is pure: from a configuration, a
// request, what was observed in the kernel and what the earlier planners of the chain planned, it computes the fragment
// of state that should exist and the result of the ADD. It never accesses the kernel, so a plan can be replayed from a
// bug report.
package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Input is the input of a planner.
type Input struct {
	Conf model.PluginConf
	// Decoded is Conf as Decode has parsed it. Without it, each call parses Conf again.
	Decoded *Decoded
	Request model.Request
	// IPAM is the result of the plugin's ipam section, nil if the section is absent or addresses are not allocated yet.
	// The ledger records addresses before the plan is computed.
	IPAM *model.Result
	// Answers has an answer for every query of Observe.
	Answers state.Answers
	// IPAMTiming is not IPAMFirst if IPAM needs the interface.
	IPAMTiming IPAMTiming
	// Chain is what the earlier planners of the list planned.
	Chain Chain
	// MTU is the MTU of the node's pods, for a plugin without a configured MTU; 0 leaves it to the kernel.
	MTU int
}

// IPAMTiming is when IPAM is called. An IPAM plugin that sends packets (dhcp), and every foreign one, needs the
// interface: then Plan is called twice with the same answers, first for the interface only, then for everything. What
// the first call planned is applied in between and must be part of what the second one plans, so it must not depend on
// addresses.
type IPAMTiming uint8

// These are the times at which IPAM is called.
const (
	// IPAMFirst: addresses are allocated before anything is planned.
	IPAMFirst IPAMTiming = iota
	// LinkOnly: the first call. IPAM is an empty result; no addresses and no routes are planned.
	LinkOnly
	// LinkMade: the second call. The interface exists.
	LinkMade
)

// Chain is what the earlier planners of one list planned.
type Chain struct {
	// Prev is their result, nil for the first plugin.
	Prev *model.Result
	// Fragment is the sum of their fragments.
	Fragment state.Fragment
	// Pending is the part of it that is not applied to the kernel yet and may still be changed.
	Pending state.Fragment
}

// Step is the output of a planner.
type Step struct {
	// Fragment is what this plugin adds; it is merged into Chain.Fragment.
	Fragment state.Fragment
	// Pending, unless nil, replaces Chain.Pending: a planner that changes what an earlier one plans (a MAC address, the
	// table of its routes) replaces the plan, instead of changing the kernel's state after it was created.
	Pending *state.Fragment
	// Restore is the pre-image of what the fragment changes and did not create: interfaces by name, addresses, routes,
	// settings. It is recorded before the kernel is changed. Undo removes the fragment, then applies the pre-image to
	// objects that still exist.
	Restore state.Fragment
	// Backup is a file about Restore for the reference plugin's DEL: written after the ledger's record, deleted by undo.
	Backup *File
	// Warnings are about the node: its state may prevent what the configuration wants.
	Warnings []model.Warning
	// Guests are the configurations of the DHCP and RA servers for guests on links of the fragment.
	Guests []model.GuestConfig
	// Result is the chain's result after this plugin.
	Result model.Result
}

// Planner plans one plugin type. Errors are *model.Error with the right CNI code.
//
// # Order
//
// The planners of a list are called in its order: Decode of all before anything is recorded; then for each one IPAM
// allocates the addresses of its ipam section, Observe returns queries, the queries are answered, Plan is called.
// Chain.Fragment is the sum of the earlier steps' fragments in that order, Chain.Prev the Result of the previous step.
// The first planner of an ADD has an empty Chain, unless the caller passed a prevResult. Plan is for ADD: an existing
// interface is an error. CHECK, DEL and GC use the recorded sum.
type Planner interface {
	// Type returns the plugin's name ("bridge").
	Type() string
	// Keys returns the configuration keys that the plugin knows, dotted for nested objects and with [] for lists ("ipam",
	// "vlanTrunk[].minID"). `weft cni validate` compares unknown keys with them.
	Keys() []string
	// Decode parses and validates a configuration. It is called before anything is recorded. It returns the planner's own
	// immutable form of the configuration, which the planner gets with all further calls (see Decoded).
	Decode(conf model.PluginConf) (any, error)
	// IPAM returns the plugin's ipam section unchanged, nil if it needs no addresses.
	IPAM(conf model.PluginConf) ([]byte, error)
	// Observe returns the queries for the kernel's state, and rejects a request that can never be planned. It may use
	// Conf, Request and Chain, but not IPAM: queries and allocations run concurrently.
	Observe(in Input) ([]state.Query, error)
	// Plan computes the step.
	Plan(in Input) (Step, error)
	// Capabilities returns the optional interfaces that the planner implements.
	Capabilities() Capabilities
}

// Builtin returns all planners by type.
func Builtin() map[string]Planner {
	table := map[string]Planner{}
	planners := []Planner{
		Loopback{},
		PTP{},
		Bridge{},
		Macvlan{},
		Ipvlan{},
		VLAN{},
		Dummy{},
		Tap{},
		HostDevice{},
		Portmap{},
		Bandwidth{},
		Firewall{},
		Tuning{},
		SBR{},
		VRF{},
		Flannel{},
		Direct{},
		Macvtap{},
	}
	for _, p := range planners {
		table[p.Type()] = p
	}
	return table
}

// InAgent returns Builtin and the planners that only an agent uses, for which no plugin binary exists. Its bridge ports
// are guarded, which the reference plugin does not do.
func InAgent() map[string]Planner {
	table := Builtin()
	table[DefaultRouteType] = DefaultRoute{}
	table[IPAMOnlyType] = IPAMOnly{}
	table[CalicoType] = Calico{}
	table[OwnMacvtapType] = Macvtap{OwnDevice: true}
	table[Bridge{}.Type()] = Bridge{SourceGuard: true}
	table[Macvlan{}.Type()] = Macvlan{Agent: true}
	return table
}
