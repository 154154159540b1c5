// SPDX-License-Identifier: Apache-2.0

// Package plugin plans CNI plugins: one planner for each plugin type. A planner is pure: from a configuration, a
// request, what the kernel answered and what was planned before it in the chain, it says which fragment of state should
// exist and what result the caller gets. It never touches the kernel; a plan can be replayed from a bug report.
package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Input is all that a planner may know.
type Input struct {
	Conf model.PluginConf
	// Decoded is Conf as Decode has read it. Nil has each question read Conf again: for who asks one.
	Decoded *Decoded
	Request model.Request
	// IPAM is the answer of the plugin's IPAM section, nil when the section is absent or not yet asked. Addresses are
	// promised by attach before the plan is made.
	IPAM *model.Result
	// Answers holds an answer for every query of Observe.
	Answers state.Answers
	// Late tells that IPAM had to wait for the interface.
	Late Late
	// Chain is what the planners before this one decided.
	Chain Chain
	// MTU is that of the node's pods, for a plugin that leaves it to the node; 0 leaves it to the kernel.
	MTU int
}

// Late says when IPAM is asked. An IPAM plugin that sends packets (dhcp), and every foreign one, needs the interface:
// then Plan is called twice with the same answers, first for the interface alone, then for everything. What the first
// call planned is applied in between and must be part of what the second one plans, so nothing of it may come from
// addresses.
type Late uint8

// When IPAM is asked.
const (
	// Early: the addresses are known before anything is planned.
	Early Late = iota
	// LinkAlone: the first call. IPAM is an empty result; no addresses and no routes are planned.
	LinkAlone
	// LinkMade: the second call. The interface exists.
	LinkMade
)

// Chain is what the earlier planners of one list decided.
type Chain struct {
	// Prev is their result, nil for the first plugin.
	Prev *model.Result
	// Fragment is everything they planned.
	Fragment state.Fragment
	// Open is the part of it that is not in the kernel yet: what it names is made, and may still be planned otherwise.
	Open state.Fragment
}

// Step is a planner's decision.
type Step struct {
	// Fragment is what this plugin adds; it is merged behind Chain.Fragment.
	Fragment state.Fragment
	// Open, unless nil, replaces Chain.Open: a planner that changes what those before it plan to make (its MAC, the table
	// of its routes) has it made that way, instead of having it made and changed.
	Open *state.Fragment
	// Restore is the pre-image of what the fragment changes and did not make: links by name, addresses, routes, settings.
	// It is remembered before the kernel is touched; undo removes the fragment, then applies it, as far as what it names
	// is still there.
	Restore state.Fragment
	// Backup is a file about Restore for the reference plugin's DEL: written after the promise, taken away by undo.
	Backup *File
	// Doubts are about the node: it may not do with what is planned what the configuration wants.
	Doubts []model.Doubt
	// Guests is what guests are told on wires that the fragment makes.
	Guests []model.Guest
	// Result is the chain's result after this plugin.
	Result model.Result
}

// Planner plans one plugin type. Errors are *model.Fault with the right CNI code.
//
// # Order
//
// The planners of a list are asked in its order: Decode of all before anything is promised; then for each one its IPAM
// section is answered, Observe, its queries are answered, Plan. Chain.Fragment is the sum of the earlier steps'
// fragments in that order, Chain.Prev the Result of the step before. The first planner of an ADD has an empty Chain,
// unless the caller handed a prevResult in. Plan is for ADD: an interface that exists is an error there. CHECK, DEL and
// GC use the recorded sum.
type Planner interface {
	// Type is the plugin's name ("bridge").
	Type() string
	// Keys are the configuration keys the plugin knows, dotted for nested objects and with [] for lists
	// ("ipam", "vlanTrunk[].minID"); what `weft cni validate` compares unknown keys with.
	Keys() []string
	// Decode reads a configuration, and refuses one that can never be planned. It is asked before anything is promised.
	// What it returns is the planner's own form of the configuration, which nobody changes: it gets it back with all
	// further questions (see Decoded).
	Decode(conf model.PluginConf) (any, error)
	// IPAM is the plugin's ipam section as it stands, nil when it asks for no addresses.
	IPAM(conf model.PluginConf) ([]byte, error)
	// Observe says what must be known of the kernel, and refuses a request that can never be planned. It may use Conf,
	// Request and Chain; it must not need IPAM, so that queries and addresses can be asked for at the same time.
	Observe(in Input) ([]state.Query, error)
	// Plan decides.
	Plan(in Input) (Step, error)
	// Capabilities is what it can do beside that.
	Capabilities() Capabilities
}

// Builtin is the table of all planners by type, handed to whoever plans.
func Builtin() map[string]Planner {
	table := map[string]Planner{}
	planners := []Planner{
		Loopback{},
		PTP{},
		Bridge{},
		Macvlan{},
		Ipvlan{},
		Vlan{},
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
	}
	for _, p := range planners {
		table[p.Type()] = p
	}
	return table
}

// InAgent is Builtin with what only an agent plans: there is no program for it. Ports of bridges are guarded, which the
// reference plugin does not do.
func InAgent() map[string]Planner {
	table := Builtin()
	table[DefaultRouteType] = DefaultRoute{}
	table[IPAMOnlyType] = IPAMOnly{}
	table[CalicoType] = Calico{}
	table[Bridge{}.Type()] = Bridge{SourceGuard: true}
	return table
}
