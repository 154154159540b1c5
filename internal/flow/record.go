// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Kind is what happened to a connection.
type Kind string

// The kinds.
const (
	// New: its first packet passed the node's packet filters.
	New Kind = "new"
	// End: the kernel does not track it any more. A TCP connection ends two minutes after its last packet.
	End Kind = "end"
	// Update: the state of a TCP connection has changed. It is reported to readers that ask for it.
	Update Kind = "update"
	// Tracked: it was there when the observation began.
	Tracked Kind = "tracked"
	// Denied: a network policy denied a packet.
	Denied Kind = "denied"
	// Dropped: the kernel, or a packet filter that is not weft's, dropped a packet.
	Dropped Kind = "dropped"
)

// Verdict is what became of a connection's packets on a node.
type Verdict string

// The verdicts.
const (
	Allowed        Verdict = "allowed"
	DeniedVerdict  Verdict = "denied"
	DroppedVerdict Verdict = "dropped"
)

// Directions, as seen from the endpoints of the node that reports the flow.
const (
	Egress  = "egress"  // the source is an endpoint of the node
	Ingress = "ingress" // the destination is
	Local   = "local"   // both are
	Transit = "transit" // none is
)

// IdentityKind is the kind of an address's holder.
type IdentityKind string

// The kinds.
const (
	PodEnd     IdentityKind = "pod"
	VMEnd      IdentityKind = "vm"
	NodeEnd    IdentityKind = "node"
	ServiceEnd IdentityKind = "service"
	// PoolEnd: no agent knows the address, and it is one of a pool of the cluster's network.
	PoolEnd IdentityKind = "pool"
	// OutsideEnd: no agent knows the address.
	OutsideEnd IdentityKind = "outside"
	// OtherEnd are the ends of flows of which an agent has kept no more than their number.
	OtherEnd IdentityKind = "others"
	// HiddenEnd: the reader may not see what holds the address.
	HiddenEnd IdentityKind = "hidden"
)

// Identity is what holds an address.
type Identity struct {
	Kind IdentityKind `json:"kind"`
	// Name is namespace/name, of a node or a pool its name; empty outside.
	Name string `json:"name,omitempty"`
	// Pod is the pod (namespace/name) in which a VM runs.
	Pod string `json:"pod,omitempty"`
	// Node is where the endpoint is.
	Node string `json:"node,omitempty"`
	// Network is that of the interface, namespace/name; empty: the cluster's.
	Network string `json:"network,omitempty"`
	// Labels are those of the pod at that time.
	Labels LabelSet `json:"labels,omitzero"`
}

// Endpoint is an end of a connection.
type Endpoint struct {
	Addr netip.Addr `json:"address"`
	Port uint16     `json:"port,omitempty"`
	Identity
}

// Decision is what the policies of one end decided.
type Decision struct {
	// Direction is ingress or egress.
	Direction string `json:"direction"`
	// HostEndpoint is the interface of the node that decided; empty: the end is a pod.
	HostEndpoint string            `json:"hostEndpoint,omitempty"`
	Allowed      bool              `json:"allowed"`
	Policies     []model.PolicyKey `json:"policies,omitempty"` // none: none selects the endpoint
	// Rule is the number of the rule in its policy, from 0; -1 if no rule decided.
	Rule int `json:"rule"`
	// Text is the rule of nftables that decided, Chain its chain, and Element of the set Set what matched, if that was asked
	// for.
	Text    string `json:"text,omitempty"`
	Chain   string `json:"chain,omitempty"`
	Set     string `json:"set,omitempty"`
	Element string `json:"element,omitempty"`
}

// Counters are what passed of a connection, from its source and back.
type Counters struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Record is a flow: one event of a connection on one node. Both nodes of a connection report it.
type Record struct {
	// Time is when the node's agent received the event.
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	Kind Kind      `json:"kind"`
	// Protocol is tcp, udp, sctp, icmp, icmpv6, or the number of another one.
	Protocol string `json:"protocol"`
	// From is the source before SNAT, To the destination after DNAT.
	From Endpoint `json:"from"`
	To   Endpoint `json:"to"`
	// Via is the destination before DNAT, if there was any: the address of a Service, or of a node with its port.
	Via *Endpoint `json:"via,omitempty"`
	// Masquerade is the source after SNAT, if there was any.
	Masquerade *netip.AddrPort `json:"masquerade,omitempty"`
	Direction  string          `json:"direction"`
	// State is the state of a TCP connection as the kernel tracks it, at the time of the event: syn-sent, established …
	State   string  `json:"state,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Decisions are those of the policies that this node enforces on the ends that are its endpoints.
	Decisions []Decision `json:"decisions,omitempty"`
	// Reason is why a packet was dropped, or why there are no decisions.
	Reason string `json:"reason,omitempty"`
	// Forth and Back count packets at the end of a connection; absent: the kernel does not count (nf_conntrack_acct).
	Forth *Counters `json:"forth,omitempty"`
	Back  *Counters `json:"back,omitempty"`
	// Count is how many flows of the same ends and decisions this is the sum of, from Time until Until; 0: it is one flow.
	// The source's port is not known then.
	Count uint64    `json:"count,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// Flows returns how many flows it stands for.
func (r Record) Flows() uint64 { return max(r.Count, 1) }

// States returns the states of TCP connections.
func States() []string {
	return []string{
		"none", "syn-sent", "syn-recv", "established", "fin-wait", "close-wait", "last-ack", "time-wait", "close", "syn-sent2",
	}
}

// HasEndpoint reports whether an end is a pod, a VM or a Service, or may be one.
func (r Record) HasEndpoint() bool {
	is := func(i Identity) bool {
		return i.Kind == PodEnd || i.Kind == VMEnd || i.Kind == ServiceEnd || i.Kind == OtherEnd
	}
	return is(r.From.Identity) || is(r.To.Identity) || r.Via != nil && is(r.Via.Identity)
}

// The levels: what an agent observes without a reader.
const (
	LevelOff    = "off"
	LevelDenied = "denied" // denied and dropped packets
	LevelFlows  = "flows"  // connections, too
)

// Begin is the first line of a stream.
type Begin struct {
	Node string `json:"node"`
	// Addrs are the node's own addresses.
	Addrs []netip.Addr `json:"addresses,omitempty"`
	// Level is what the agent observes without a reader: off, denied or flows.
	Level string `json:"level"`
	// Labels reports that the agent knows the labels of its pods, and that they were asked for.
	Labels bool `json:"labels,omitempty"`
	// From is the time after which no flow is missing among those that were asked for; zero: none is, as far as the agent
	// has observed.
	From time.Time `json:"from,omitzero"`
	// Notes are what is not observed on this node, and why.
	Notes []string `json:"notes,omitempty"`
}

// Holder is an address of a node's endpoint, from a time on.
type Holder struct {
	Time    time.Time  `json:"time"`
	Addr    netip.Addr `json:"address"`
	Network string     `json:"network,omitempty"`
	// Identity is nil when the address is not in use any more.
	Identity *Identity `json:"identity,omitempty"`
}

// Lost are flows that are missing in a stream, in the last second that had any.
type Lost struct {
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	// New, Update and End are events that the kernel could not hand over in time, and Drops dropped packets of this host, of which an
	// agent also names only so many in a second. Queue are records that the reader of the stream did not take in time.
	New    uint64 `json:"new,omitempty"`
	Update uint64 `json:"update,omitempty"`
	End    uint64 `json:"end,omitempty"`
	Drops  uint64 `json:"drops,omitempty"`
	Queue  uint64 `json:"queue,omitempty"`
}

// Sum returns how many are missing.
func (l Lost) Sum() uint64 { return l.New + l.Update + l.End + l.Drops + l.Queue }

// Since returns what is missing in addition to an earlier sum.
func (l Lost) Since(o Lost) Lost {
	return Lost{
		New: l.New - o.New, Update: l.Update - o.Update, End: l.End - o.End, Drops: l.Drops - o.Drops, Queue: l.Queue - o.Queue,
	}
}

// Line is one line of a stream; one of its fields is set. A line without any is sent so that the reader knows that the agent is there.
type Line struct {
	Begin  *Begin  `json:"begin,omitempty"`
	Holder *Holder `json:"holder,omitempty"`
	Flow   *Record `json:"flow,omitempty"`
	Lost   *Lost   `json:"lost,omitempty"`
	// Known: what was known when the stream began has been sent; what follows is live.
	Known bool `json:"known,omitempty"`
}

// Protocol returns the name of a transport protocol.
func Protocol(number uint8) string {
	names := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp"}
	if name := names[number]; name != "" {
		return name
	}
	return strconv.Itoa(int(number))
}

// ProtocolNumber returns the number of a protocol that Protocol has named; 0 is unknown.
func ProtocolNumber(name string) uint8 {
	numbers := map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
	if n, known := numbers[name]; known {
		return n
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return 0
	}
	return uint8(n)
}
