// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
)

// Endpoint is an interface of a pod, as network policy sees it.
type Endpoint struct {
	Pod  PodRef `json:"pod"`
	Node string `json:"node,omitempty"`
	// Network is empty for the cluster's network, else "namespace/name" of a NetworkAttachment.
	Network string `json:"network,omitempty"`
	IfName  string `json:"ifName"`
	// HostLink is the node's end of the interface, by which all of its packets come and go; not where Point is PointPod.
	HostLink string `json:"hostLink,omitempty"`
	// Device is the PCI address where Point is PointDevice.
	Device string       `json:"device,omitempty"`
	Addrs  []netip.Addr `json:"addrs,omitempty"`
	Point  PolicyPoint  `json:"point,omitempty"`
}

// PolicyPoint says in which namespace the packets of an endpoint are judged.
type PolicyPoint string

// The places.
const (
	PointHost PolicyPoint = "host" // the node's: the interface is routed there
	PointPod  PolicyPoint = "pod"  // the pod's own
	PointTap  PolicyPoint = "tap"  // the pod's own, below IP: a macvtap
	PointPort PolicyPoint = "port" // the node's, at a port of a bridge
	// PointDevice is nowhere: a virtual machine drives the device by itself.
	PointDevice PolicyPoint = "device"
)

// EndpointKey tells endpoints apart.
type EndpointKey struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// UID tells a pod from an earlier one of the name; two of them may have interfaces for a moment.
	UID    string `json:"uid,omitempty"`
	IfName string `json:"ifName"`
	// Node is the one that says so: no node takes another's word away.
	Node string `json:"node,omitempty"`
}

// Key is what tells the endpoint from others.
func (e Endpoint) Key() EndpointKey {
	return EndpointKey{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, UID: e.Pod.UID, IfName: e.IfName, Node: e.Node}
}

// String is "namespace/pod/interface".
func (k EndpointKey) String() string { return k.Namespace + "/" + k.Pod + "/" + k.IfName }

// Equal tells whether both say the same.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Pod == o.Pod && e.Node == o.Node && e.Network == o.Network && e.IfName == o.IfName && e.HostLink == o.HostLink && e.Device == o.Device &&
		e.Point == o.Point && slices.Equal(e.Addrs, o.Addrs)
}
