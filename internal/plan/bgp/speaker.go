// SPDX-License-Identifier: Apache-2.0

// Package bgp plans what a node's BGP speaker does, from the cluster's objects, and which of the routes that it learns
// are in the node's kernel. It is pure. The speaker is another program (weft-bgp): a Speaker is the whole of its
// configuration, sent as JSON, and Route and PeerState are what it reports.
//
// # Rules
//
//   - A node announces its own prefixes (podCIDRs and blocks) and ranges of Services, and nothing that it has learned,
//     unless it is a route reflector.
//   - What no peer may announce is refused before routes are compared: prefixes within this node's own ones, within the
//     cluster's pools unless BGP is the backend of the mesh, within ranges of Services, and within the networks that the
//     node is connected to; and the default route, unless an import filter accepts it by its prefix.
//   - Objects that contradict each other are left out, with a Problem; everything else is planned.
package bgp

import "net/netip"

// Defaults of BGP's settings, which are Calico's.
const (
	DefaultASN         = 64512
	DefaultPort        = 179
	DefaultRestartTime = 120 // seconds
	// HoldTime is after how many seconds without a message a session ends, and MaxPrefixes how many routes a peer may announce.
	HoldTime    = 90
	MaxPrefixes = 100_000
)

// Speaker is the configuration of a node's speaker.
type Speaker struct {
	ASN      uint32     `json:"asNumber"`
	RouterID netip.Addr `json:"routerID"`
	// Listen are the addresses on Port on which sessions are accepted; none: all.
	Port   int          `json:"port"`
	Listen []netip.Addr `json:"listen,omitempty"`
	// RestartTime is how long the node's routes are kept without its speaker, in seconds.
	RestartTime int    `json:"restartTime"`
	Peers       []Peer `json:"peers,omitempty"` // sorted by address and interface
	// Announced are sorted by prefix.
	Announced []Announced `json:"announced,omitempty"`
	// Refused is what no peer may announce, Pods what only some may (Peer.Pods): the prefixes of the cluster's pods.
	Refused []Range `json:"refused,omitempty"`
	Pods    []Range `json:"pods,omitempty"`
	// Unexported is what is announced to no peer, also not by a route reflector.
	Unexported []Range `json:"unexported,omitempty"`
}

// Peer is a session.
type Peer struct {
	// Name is the object's, or of a session of the mesh the node's.
	Name string     `json:"name"`
	Addr netip.Addr `json:"address"`
	// Interface has the peer, if it has no address: it is the router that is found on that link (unnumbered).
	Interface string `json:"interface,omitempty"`
	Port      int    `json:"port,omitempty"`
	ASN       uint32 `json:"asNumber"`
	// LocalASN is the AS number that the peer sees; 0 is the speaker's.
	LocalASN uint32     `json:"localASNumber,omitempty"`
	Source   netip.Addr `json:"source,omitzero"`
	Password string     `json:"password,omitempty"`
	// Passive: the peer connects.
	Passive     bool `json:"passive,omitempty"`
	TTLSecurity int  `json:"ttlSecurity,omitempty"` // hops
	RestartTime int  `json:"restartTime"`           // seconds
	Keepalive   int  `json:"keepalive,omitempty"`   // seconds; 0: a third of HoldTime
	AllowOwnAS  int  `json:"allowOwnAS,omitempty"`
	// Client makes the peer a client of this route reflector, with the cluster ID.
	Client    bool       `json:"client,omitempty"`
	ClusterID netip.Addr `json:"clusterID,omitzero"`
	// NextHopSelf and NextHopKeep change the next hop of routes that are passed on.
	NextHopSelf bool `json:"nextHopSelf,omitempty"`
	NextHopKeep bool `json:"nextHopKeep,omitempty"`
	// Default: the peer may announce the default route.
	Default bool `json:"default,omitempty"`
	// Node: the peer is a node of the cluster.
	Node bool `json:"node,omitempty"`
	// Pods: the peer may announce prefixes of the cluster's pods.
	Pods   bool   `json:"pods,omitempty"`
	Import []Rule `json:"import,omitempty"`
	Export []Rule `json:"export,omitempty"`
}

// Internal reports whether the session is within an AS (iBGP).
func (p Peer) Internal(s Speaker) bool { return p.ASN == p.OwnASN(s) }

// OwnASN returns the AS number that the peer sees.
func (p Peer) OwnASN(s Speaker) uint32 {
	if p.LocalASN != 0 {
		return p.LocalASN
	}
	return s.ASN
}

// Where returns the peer's address, or the interface that has it.
func (p Peer) Where() string { return where(p.Addr, p.Interface) }

func where(addr netip.Addr, link string) string {
	if !addr.IsValid() {
		return link
	}
	return addr.String()
}

// Announced is a prefix that the node announces.
type Announced struct {
	Prefix      netip.Prefix `json:"prefix"`
	Communities []string     `json:"communities,omitempty"`
}

// Range are the prefixes within a prefix whose lengths are within bounds.
type Range struct {
	Prefix netip.Prefix `json:"prefix"`
	Min    int          `json:"min"`
	Max    int          `json:"max"`
}

// Contains reports whether a prefix is in the range.
func (r Range) Contains(p netip.Prefix) bool {
	return p.Addr().Is4() == r.Prefix.Addr().Is4() && p.Bits() >= r.Min && p.Bits() <= r.Max && p.Bits() >= r.Prefix.Bits() &&
		r.Prefix.Contains(p.Addr())
}

// within returns the range of all prefixes within one.
func within(p netip.Prefix) Range { return Range{p.Masked(), p.Bits(), p.Addr().BitLen()} }

// exactly returns the range of one prefix.
func exactly(p netip.Prefix) Range { return Range{p.Masked(), p.Bits(), p.Bits()} }

// Rule is a rule of a filter. The first rule with which a route agrees decides.
type Rule struct {
	// Ranges has the route's prefix.
	Ranges []Range `json:"ranges"`
	// Remote: only learned routes.
	Remote bool `json:"remote,omitempty"`
	// Communities: the route has one of them.
	Communities []string `json:"communities,omitempty"`
	// ASPathPrefix are the first AS numbers of the route's path.
	ASPathPrefix []uint32 `json:"asPathPrefix,omitempty"`
	Accept       bool     `json:"accept"`
	// What an accepted route gets.
	AddCommunities []string `json:"addCommunities,omitempty"`
	Prepend        []uint32 `json:"prepend,omitempty"`
}

// Route is a learned route that was chosen among the peers'.
type Route struct {
	Prefix netip.Prefix `json:"prefix"`
	// Paths are the chosen ones: several, if they are equally good (ECMP). The first is the best.
	Paths []Path `json:"paths"`
}

// Path is a way that a peer has announced.
type Path struct {
	Peer    netip.Addr `json:"peer"`
	NextHop netip.Addr `json:"nextHop"`
	// Stale: the peer's session is down, and its restart time is not over.
	Stale bool `json:"stale,omitempty"`
}

// PeerState is the state of a session.
type PeerState struct {
	Name string `json:"name"`
	// Addr is invalid while no peer has been found on Interface.
	Addr      netip.Addr `json:"address"`
	Interface string     `json:"interface,omitempty"`
	ASN       uint32     `json:"asNumber"`
	// Session is BGP's state: idle, connect, active, opensent, openconfirm, established.
	Session string `json:"session"`
	// Since is when it was last established or lost, in seconds since 1970; 0: never.
	Since int64 `json:"since,omitempty"`
	// Received, Accepted and Advertised count prefixes.
	Received   uint64 `json:"received"`
	Accepted   uint64 `json:"accepted"`
	Advertised uint64 `json:"advertised"`
	// Error is why the session was last lost or refused.
	Error string `json:"error,omitempty"`
}

// Where returns the peer's address, or the interface on which no peer has been found.
func (s PeerState) Where() string { return where(s.Addr, s.Interface) }
