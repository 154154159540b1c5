// SPDX-License-Identifier: Apache-2.0

// Package agentapi is what weft-docker requests of the agent besides ADD and DEL: the routes of the agent's admin socket
// for containers without a Pod object.
package agentapi

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// The routes.
const (
	// RouteHandOver (POST) hands an attachment over to the container engine; the request is a HandOver, with the namespace
	// of the ADD, the response a HandedOver.
	RouteHandOver = "/containers/hand-over"
	// RouteLabels (POST) sets the labels of a container; the request is Labels.
	RouteLabels = "/containers/labels"
	// RoutePorts (POST) publishes ports of the node, in place of those that the container has; the request is Ports, the
	// response Published. It is idempotent.
	RoutePorts = "/containers/ports"
	// RouteClosed (POST) reports why the labels of a container are not known yet, for operators; the request is Closed.
	RouteClosed = "/containers/closed"
	// RouteList (GET) lists the attachments of containers, each an Attachment.
	RouteList = "/containers"
	// RoutePools (GET) lists the pools of the cluster's network, each a Pool.
	RoutePools = "/containers/pools"
	// RouteNetwork (GET) fails unless the NetworkAttachmentDefinition exists that the query's namespace and name name.
	RouteNetwork = "/containers/network"
)

// Engine is the value of model.ContainerArg in the ADDs of weft-docker.
const Engine = "docker"

// Key identifies an attachment.
type Key struct {
	// Network is the name of the network in the runtime's configuration of the agent; empty: the container has only one.
	Network     string `json:"network,omitempty"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// HandOver is the request to move the interface of an attachment into the node's namespace, from where the engine moves it
// into the container.
type HandOver struct {
	Key
	// Link is the interface's name in the node's namespace.
	Link string `json:"link"`
	// MTU in bytes; 0 keeps the network's.
	MTU int `json:"mtu,omitempty"`
	// Gateway and Gateway6 are the gateways of a routed interface; Gateway6 is a link-local address.
	Gateway  netip.Addr `json:"gateway,omitzero"`
	Gateway6 netip.Addr `json:"gateway6,omitzero"`
	// Netns is the path of the ADD's namespace, for messages.
	Netns string `json:"netns,omitempty"`
}

// HandedOver is what the engine configures in the container.
type HandedOver struct {
	// Gateways are those of the default routes, one for each address family of the attachment.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	// MTU of the interface in bytes; 0: the kernel's.
	MTU int `json:"mtu,omitempty"`
}

// Labels are the labels of a container. Nothing passes its interface until the agent has them.
type Labels struct {
	Key
	Labels map[string]string `json:"labels"`
}

// Closed reports that nothing passes the interface of a container, because its labels are not known.
type Closed struct {
	Key
	Address netip.Addr `json:"address"`
	// Reason is the error of reading the labels.
	Reason string `json:"reason"`
}

// Ports are the ports of the node that lead to a container that was handed over; none revokes them.
type Ports struct {
	Key
	Ports []model.PublishedPort `json:"ports,omitempty"`
}

// Published are the same ports, with those that the agent has chosen.
type Published struct {
	Ports []model.PublishedPort `json:"ports,omitempty"`
}

// Attachment is an attachment of a container.
type Attachment struct {
	Key
	// Engine is that of the ADD.
	Engine string `json:"engine"`
	// Addresses of the interface, with their prefix lengths.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// HandedOver, and LabelsKnown: packets pass.
	HandedOver  bool `json:"handedOver,omitempty"`
	LabelsKnown bool `json:"labelsKnown,omitempty"`
	// Ports are the published ports of the node.
	Ports []model.PublishedPort `json:"ports,omitempty"`
}

// Pool is a range that containers may get addresses from.
type Pool struct {
	// Name is that of the AddressPool, empty for the range of this node (network.addresses: nodes).
	Name string       `json:"name,omitempty"`
	CIDR netip.Prefix `json:"cidr"`
}

// String returns the range with its name.
func (p Pool) String() string {
	if p.Name == "" {
		return p.CIDR.String()
	}
	return p.Name + " " + p.CIDR.String()
}
