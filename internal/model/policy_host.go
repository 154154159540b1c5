// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"net/netip"
	"slices"
)

// HostEndpoint is one of Calico's host endpoints: interfaces of a node, as policies select them.
type HostEndpoint struct {
	Name, Node string
	// Interface is an interface's name, AllInterfaces, or empty: then it is the one that has one of Addrs.
	Interface string
	// Addrs are the addresses by which the rules of other endpoints select it (expectedIPs).
	Addrs []netip.Addr
	// Incomplete: the object has addresses that cannot be read.
	Incomplete bool
	Labels     map[string]string
	// Allows: one of its profiles allows what no policy decides. Otherwise that is denied.
	Allows bool
	// Automatic: Calico's controllers have created it.
	Automatic bool
	Ports     []PodPort
}

// AllInterfaces is HostEndpoint.Interface for all interfaces of the node that have no host endpoint of their own.
const AllInterfaces = "*"

// Equal reports whether both are equal.
func (h HostEndpoint) Equal(o HostEndpoint) bool {
	return h.Name == o.Name && h.Node == o.Node && h.Interface == o.Interface && slices.Equal(h.Addrs, o.Addrs) &&
		h.Incomplete == o.Incomplete &&
		maps.Equal(h.Labels, o.Labels) && h.Allows == o.Allows && h.Automatic == o.Automatic && slices.Equal(h.Ports, o.Ports)
}

// HostScope is what one of Calico's policies is about at host endpoints.
type HostScope struct {
	// ApplyOnForward: also about packets that the node forwards, not only those of its own processes.
	ApplyOnForward bool `json:"applyOnForward,omitempty"`
	// PreDNAT: before the destination is translated. DoNotTrack: before, and without, connection tracking.
	PreDNAT    bool `json:"preDNAT,omitempty"`
	DoNotTrack bool `json:"doNotTrack,omitempty"`
}

// Only reports whether the policy is about host endpoints only, and selects no pods.
func (s HostScope) Only() bool { return s.PreDNAT || s.DoNotTrack }

// FailsafePort is a port that policies at host endpoints cannot close.
type FailsafePort struct {
	Protocol Protocol
	Port     uint16
	// Net is the prefix of the other end; invalid: any.
	Net netip.Prefix
}

// HostEndpointTemplate is how Calico's controllers create host endpoints for nodes.
type HostEndpointTemplate struct {
	Name     string
	Nodes    Expression
	Labels   map[string]string
	Networks []netip.Prefix
	// Interfaces is a regular expression for the names of interfaces; empty: the host endpoint has addresses only.
	Interfaces string
}

// HostEndpointController is the part of Calico's controllers that creates host endpoints for all nodes.
type HostEndpointController struct {
	// Enabled: there are some. Default: one for all interfaces of each node.
	Enabled, Default bool
	Templates        []HostEndpointTemplate
}

// FelixConfiguration is what of Calico's configuration of its nodes changes verdicts.
type FelixConfiguration struct {
	// Name is "default", "node.NAME", or that of one for the nodes that Nodes selects.
	Name  string
	Nodes *Expression
	// Created orders those that select a node: the oldest is used. Seconds since 1970.
	Created int64
	// Inbound and Outbound are ports that host endpoints never close; nil: not set.
	Inbound, Outbound *[]FailsafePort
	// EndpointToHost is what becomes of packets of pods to their own node that the pod's policies allow: Drop, Return,
	// Accept, or empty if it is not set.
	EndpointToHost string
}

// EndpointToHostDrop is the value of FelixConfiguration.EndpointToHost that drops packets.
const EndpointToHostDrop = "Drop"

// The label by which Calico's controllers know the host endpoints that they have created.
const (
	HostEndpointCreatorLabel = "projectcalico.org/created-by"
	HostEndpointCreator      = "calico-kube-controllers"
)
