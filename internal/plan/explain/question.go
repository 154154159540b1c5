// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// Kind is what a question is about.
type Kind string

// The kinds of questions, and the fields of Question that they use besides Node and Pod.
const (
	// AskRoute: how a packet From To is routed that arrived on the link In (empty: that is sent here).
	AskRoute Kind = "route"
	// AskLink: the link named Link. The answer has its state, attributes and counters.
	AskLink Kind = "link"
	// AskNeighbor: the neighbor entry of To on Link.
	AskNeighbor Kind = "neighbor"
	// AskResolve: the neighbor entry of To on Link, which the kernel resolves now if it has none.
	AskResolve Kind = "resolve"
	// AskJoin: how the tap Name is joined to Link without a bridge; the value is empty if it is not.
	AskJoin Kind = "join"
	// AskFDB: where a bridge's or VXLAN device's Link sends frames to MAC.
	AskFDB Kind = "fdb"
	// AskAddress: the interface that has the address To.
	AskAddress Kind = "address"
	// AskSysctl: the value of Name ("net/ipv4/ip_forward").
	AskSysctl Kind = "sysctl"
	// AskSocket: the sockets that receive Protocol packets To Port.
	AskSocket Kind = "socket"
	// AskChains: the packet filters of other programs, of the family of To.
	AskChains Kind = "chains"
	// AskPolicy: what network policies decide about a connection From To Port. It is put to the agent.
	AskPolicy Kind = "policy"
	// AskHost: what policies at the interfaces of the node, Calico's host endpoints, decide about a packet From To Port that
	// comes In and leaves by Link, see HostPacket. It is put to the agent.
	AskHost Kind = "host endpoints"
	// AskConntrack: the size of the connection table.
	AskConntrack Kind = "conntrack"
	// AskNeighborTable: the size of the neighbor table of the family of To.
	AskNeighborTable Kind = "neighbor table"
)

// Question asks one thing about a node, or about a pod on it. It is comparable.
type Question struct {
	Node string `json:"node"`
	// Pod is the pod, namespace/name, in whose network namespace the question is put; empty: in the node's.
	Pod  string `json:"pod,omitempty"`
	Kind Kind   `json:"kind"`

	From     netip.Addr     `json:"from,omitzero"`
	To       netip.Addr     `json:"to,omitzero"`
	In       string         `json:"in,omitempty"`
	Protocol model.Protocol `json:"protocol,omitempty"`
	Port     uint16         `json:"port,omitempty"`
	Link     string         `json:"link,omitempty"`
	MAC      state.MAC      `json:"mac,omitzero"`
	Name     string         `json:"name,omitempty"`
	Network  string         `json:"network,omitempty"`
	// Reply: the packet is an answer, from Port. Before is its destination before it is translated; zero: the same.
	Reply  bool           `json:"reply,omitempty"`
	Before netip.AddrPort `json:"before,omitzero"`
}

// HostPacket returns the packet of a question of kind AskHost.
func (q Question) HostPacket() policy.HostPacket {
	p := policy.HostPacket{
		In: q.In, Out: q.Link, Reply: q.Reply, Flow: policy.Flow{Src: q.From, Dst: q.To, Protocol: q.Protocol, DstPort: q.Port},
	}
	if q.Reply {
		p.Flow.SrcPort, p.Flow.DstPort = q.Port, 0
	}
	if q.Before.IsValid() {
		p.Translated = p.Flow
		p.Flow.Dst, p.Flow.DstPort = q.Before.Addr(), q.Before.Port()
	}
	return p
}

// String returns the question in a few words: "node1: route to 10.42.1.2".
func (q Question) String() string {
	var b strings.Builder
	b.WriteString(q.Place())
	fmt.Fprintf(&b, ": %s", q.Kind)
	for _, word := range []string{q.Link, q.Name} {
		if word != "" {
			b.WriteString(" " + word)
		}
	}
	if q.From.IsValid() {
		fmt.Fprintf(&b, " from %s", q.From)
	}
	if q.To.IsValid() {
		fmt.Fprintf(&b, " to %s", q.To)
	}
	return b.String()
}

// Place returns the namespace of the question: "node1", or "shop/web on node1".
func (q Question) Place() string {
	if q.Pod != "" {
		return q.Pod + " on " + q.Node
	}
	return q.Node
}

// Answer is the answer to a Question: the fields of its kind.
type Answer struct {
	// Error is why the question could not be answered. Then the other fields say nothing.
	Error string `json:"error,omitempty"`
	// Time is the time of the answer, as TimeLayout. Only a Record has it.
	Time string `json:"time,omitempty"`

	Route         *Route          `json:"route,omitempty"`
	Link          *Link           `json:"link,omitempty"`     // nil: there is no such link
	Neighbor      *Neighbor       `json:"neighbor,omitempty"` // nil: there is no entry
	FDB           []FDB           `json:"fdb,omitempty"`
	Value         string          `json:"value,omitempty"` // of a sysctl, or an interface's name
	Sockets       []Socket        `json:"sockets,omitempty"`
	Chains        *Ruleset        `json:"chains,omitempty"`
	Policy        []policy.Answer `json:"policy,omitempty"`
	Hosts         *Hosts          `json:"hosts,omitempty"`
	Conntrack     *Conntrack      `json:"conntrack,omitempty"`
	NeighborTable *NeighborTable  `json:"neighborTable,omitempty"`
}

// has reports whether an answer has what a question of that kind asks for. No link, neighbor, FDB entry, address or socket
// is an answer, too.
func (a Answer) has(kind Kind) bool {
	switch kind {
	case AskRoute:
		return a.Route != nil
	case AskSysctl:
		return a.Value != ""
	case AskChains:
		return a.Chains != nil
	case AskPolicy:
		return len(a.Policy) > 0
	case AskHost:
		return a.Hosts != nil
	case AskConntrack:
		return a.Conntrack != nil
	case AskNeighborTable:
		return a.NeighborTable != nil
	}
	return true
}

// What kernels answer.
type (
	// Route is how a packet would be routed.
	Route = state.RouteLookup
	// Link is the state of an interface.
	Link = state.LinkStatus
	// Neighbor is an entry of the neighbor table.
	Neighbor = state.NeighborStatus
	// FDB is an entry of the forwarding database of a VXLAN device.
	FDB = state.FDBStatus
	// Socket is a socket that receives.
	Socket = state.ListeningSocket
	// NeighborTable is the size of a neighbor table.
	NeighborTable = state.NeighborTableStatus
	// Ruleset are the packet filters of other programs.
	Ruleset = state.Ruleset
	// Chain is a chain of a Ruleset.
	Chain = state.RulesetChain
	// Rule is a rule of a Chain.
	Rule = state.RulesetRule
)

// resolved reports whether the kernel sends to the MAC address of a neighbor entry.
func resolved(n *Neighbor) bool {
	return n != nil && n.State != "failed" && n.State != "incomplete" && n.State != "none"
}

// Hosts is what host endpoints decide about a packet, in their order, until one denies it.
type Hosts struct {
	Sides []policy.Side `json:"sides,omitempty"`
}

// Conntrack is the state of the connection table.
type Conntrack struct {
	Count int `json:"count"`
	Max   int `json:"max"`
}

// Answers are the answers to questions.
type Answers map[Question]Answer

// RecordFile is the name of a Record in a support bundle.
const RecordFile = "explain.json"

// Record is what a node's agent knows and has answered lately, for an explanation without the agent.
type Record struct {
	Node    Node    `json:"node"`
	Answers Answers `json:"answers"`
}

// answered is an entry of Answers in JSON.
type answered struct {
	Question Question `json:"question"`
	Answer   Answer   `json:"answer"`
}

// MarshalJSON writes a list of questions with their answers.
func (a Answers) MarshalJSON() ([]byte, error) {
	list := make([]answered, 0, len(a))
	for q, answer := range a {
		list = append(list, answered{q, answer})
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads the list.
func (a *Answers) UnmarshalJSON(b []byte) error {
	var list []answered
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*a = Answers{}
	for _, one := range list {
		(*a)[one.Question] = one.Answer
	}
	return nil
}
