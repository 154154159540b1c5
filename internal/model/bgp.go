// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
)

// BGPDefault is the name of the BGPConfiguration of the whole cluster; that of a node is BGPOfNode and the node's name.
const (
	BGPDefault = "default"
	BGPOfNode  = "node."
)

// BGPConfiguration is an object of that kind, Calico's or weft's own: the settings of all nodes, or of one.
type BGPConfiguration struct {
	Name string `json:"name"`
	// Mesh is nodeToNodeMeshEnabled; nil if the object does not say.
	Mesh *bool `json:"mesh,omitempty"`
	// ASN is the nodes' AS number; 0 if the object does not say.
	ASN uint32 `json:"asNumber,omitempty"`
	// ListenPort is the TCP port; 0 if the object does not say.
	ListenPort int `json:"listenPort,omitempty"`
	// BindNodeIP: connections are accepted on the node's own addresses only.
	BindNodeIP bool `json:"bindNodeIP,omitempty"`
	// The ranges of Services' addresses that are announced.
	ServiceClusterIPs      []netip.Prefix `json:"serviceClusterIPs,omitempty"`
	ServiceExternalIPs     []netip.Prefix `json:"serviceExternalIPs,omitempty"`
	ServiceLoadBalancerIPs []netip.Prefix `json:"serviceLoadBalancerIPs,omitempty"`
	// NoAggregation: of ServiceLoadBalancerIPs single addresses are announced instead of the ranges.
	NoAggregation bool `json:"noAggregation,omitempty"`
	// Advertised are the communities of announced prefixes within a prefix.
	Advertised []BGPAdvertised `json:"prefixAdvertisements,omitempty"`
	// MeshPassword is the password of the sessions between nodes.
	MeshPassword SecretKey `json:"meshPassword,omitzero"`
	// MeshRestartTime is how long nodes keep each other's routes without a session, in seconds; 0 is the default.
	MeshRestartTime int `json:"meshRestartTime,omitempty"`
}

// BGPAdvertised are the communities of announced prefixes: "aa:nn" or large ones, "aa:nn:mm".
type BGPAdvertised struct {
	CIDR        netip.Prefix `json:"cidr"`
	Communities []string     `json:"communities,omitempty"`
}

// BGPService is a Service with a ready endpoint, as far as its addresses are announced one by one.
type BGPService struct {
	ClusterIPs      []netip.Addr `json:"clusterIPs,omitempty"`
	ExternalIPs     []netip.Addr `json:"externalIPs,omitempty"`
	LoadBalancerIPs []netip.Addr `json:"loadBalancerIPs,omitempty"`
	// Local: externalTrafficPolicy is Local. Here: an endpoint on this node is ready.
	Local bool `json:"local,omitempty"`
	Here  bool `json:"here,omitempty"`
}

// Equal reports whether two are the same.
func (s BGPService) Equal(o BGPService) bool {
	return s.Local == o.Local && s.Here == o.Here && slices.Equal(s.ClusterIPs, o.ClusterIPs) &&
		slices.Equal(s.ExternalIPs, o.ExternalIPs) && slices.Equal(s.LoadBalancerIPs, o.LoadBalancerIPs)
}

// SecretKey is a key of a Secret.
type SecretKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// BGPPeer is an object of that kind, Calico's or weft's own: a peer of nodes.
type BGPPeer struct {
	Name string `json:"name"`
	// Node is the name of the node, NodeSelector an expression for nodes; neither: all nodes.
	Node         string     `json:"node,omitempty"`
	NodeSelector Expression `json:"-"`
	// Addr and Port are the peer's; Port 0 is the default. Without an address, the peer is the router on the link Interface
	// (unnumbered), or the peers are the nodes of PeerSelector.
	Addr         netip.Addr `json:"peerIP,omitzero"`
	Port         int        `json:"port,omitempty"`
	Interface    string     `json:"interface,omitempty"`
	PeerSelector Expression `json:"-"`
	// ASN is the peer's AS number.
	ASN uint32 `json:"asNumber,omitempty"`
	// LocalASN is the AS number that the peer sees of the node; 0 is the node's own.
	LocalASN uint32 `json:"localASNumber,omitempty"`
	// NextHop is which next hop announced routes have.
	NextHop BGPNextHop `json:"nextHopMode,omitempty"`
	// Password is that of the session (TCP MD5, RFC 2385).
	Password SecretKey `json:"password,omitzero"`
	// AnySource: the kernel chooses the source address instead of the node's own.
	AnySource bool `json:"anySource,omitempty"`
	// RestartTime is how long routes are kept without a session (RFC 4724), KeepaliveTime the interval of keepalives, in
	// seconds; 0 is the default.
	RestartTime   int `json:"maxRestartTime,omitempty"`
	KeepaliveTime int `json:"keepaliveTime,omitempty"`
	// AllowOwnAS is how often the node's own AS number may occur in the path of a learned route.
	AllowOwnAS int `json:"numAllowedLocalASNumbers,omitempty"`
	// TTLSecurity is the largest number of hops to the peer (RFC 5082); 0: not checked.
	TTLSecurity int `json:"ttlSecurity,omitempty"`
	// Filters are the names of BGPFilters, in their order.
	Filters []string `json:"filters,omitempty"`
	// OneSided: the nodes of PeerSelector have no sessions because of this object.
	OneSided bool `json:"oneSided,omitempty"`
}

// BGPNextHop is which next hop announced routes have.
type BGPNextHop string

// The next hops: that of the protocol's rules, always the node's own, and the unchanged one.
const (
	BGPNextHopAuto BGPNextHop = "Auto"
	BGPNextHopSelf BGPNextHop = "Self"
	BGPNextHopKeep BGPNextHop = "Keep"
)

// BGPFilter is an object of that kind, Calico's or weft's own: which routes are announced to peers, and which are learned.
type BGPFilter struct {
	Name   string          `json:"name"`
	Export []BGPFilterRule `json:"export,omitempty"`
	Import []BGPFilterRule `json:"import,omitempty"`
	// Broken: the object cannot be read, and no version of it could be: no route passes.
	Broken bool `json:"broken,omitempty"`
}

// BGPFilterRule is a rule of a filter for a family. The first rule with which a route agrees decides.
type BGPFilterRule struct {
	Six bool `json:"six,omitempty"`
	// Match is how a route's prefix is compared with CIDR: Equal, NotEqual, In or NotIn; empty: any prefix.
	Match string       `json:"match,omitempty"`
	CIDR  netip.Prefix `json:"cidr,omitzero"`
	// MinLength and MaxLength are the bounds of the prefix length; -1: none.
	MinLength int `json:"minLength"`
	MaxLength int `json:"maxLength"`
	// Remote: only routes that were learned from peers.
	Remote bool `json:"remote,omitempty"`
	// PeerType is eBGP or iBGP; empty: any peer.
	PeerType string `json:"peerType,omitempty"`
	// Communities: one of them, "aa:nn" or "aa:nn:mm".
	Communities []string `json:"communities,omitempty"`
	// ASPathPrefix are the first AS numbers of the path.
	ASPathPrefix []uint32 `json:"asPathPrefix,omitempty"`
	Accept       bool     `json:"accept"`
	// What an accepted route gets.
	AddCommunities []string `json:"addCommunities,omitempty"`
	Prepend        []uint32 `json:"prepend,omitempty"`
}

// NodeBGP are the settings of a node in its annotations; the zero value is a node without any.
type NodeBGP struct {
	// ASN is the node's AS number; 0 is the cluster's.
	ASN uint32 `json:"asNumber,omitempty"`
	// ClusterID makes the node a route reflector (RFC 4456).
	ClusterID netip.Addr `json:"clusterID,omitzero"`
}
