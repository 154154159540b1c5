// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
)

// WorkloadEndpoint is one interface of a pod or a VM: what attach makes, what network policy is enforced on, and what a
// node publishes to the others. Of another node's endpoints only the pod, the node, the network, the names and the
// addresses are known.
type WorkloadEndpoint struct {
	// Attachment is what the endpoint was attached as.
	Attachment AttachmentKey
	Pod        PodRef
	Node       string
	// Network is empty for the cluster's network, else "namespace/name" of a NetworkAttachment.
	Network string
	IfName  string
	// Addrs are empty while they are not known.
	Addrs []netip.Addr
	// Standby: another endpoint uses the addresses, and they are not published.
	Standby bool

	// HostLink is the node's end of the interface, and HostEnd what that end is.
	HostLink string
	HostEnd  HostEnd
	// Tap: the interface is a macvtap, by which a hypervisor speaks below the pod's IP.
	Tap bool
	// Device is the PCI address of a device that a VM drives by itself: the kernel sees none of its packets.
	Device string
	// VM: a VM may be on the pod's wire.
	VM bool

	// Netns is the path of the pod's network namespace, and NetnsID says which namespace is meant.
	Netns   string
	NetnsID uint64
}

// HostEnd says what the node's end of an interface is.
type HostEnd string

// The ends. The empty one: there is none, as for a macvlan or a device.
const (
	// HostEndRouted: all packets of the interface are routed by it.
	HostEndRouted HostEnd = "routed"
	// HostEndPort: it is a port of a bridge.
	HostEndPort HostEnd = "port"
	// HostEndForeign: another plugin made it, and it is no port.
	HostEndForeign HostEnd = "foreign"
)

// PolicyPoint says where policies are enforced on an endpoint.
type PolicyPoint string

// The places.
const (
	PointHost PolicyPoint = "host" // in the node's namespace: the interface is routed there
	PointPod  PolicyPoint = "pod"  // in the pod's own
	PointTap  PolicyPoint = "tap"  // in the pod's own, below IP: a macvtap
	PointPort PolicyPoint = "port" // in the node's, at a port of a bridge
	// PointDevice is nowhere: a VM drives the device by itself.
	PointDevice PolicyPoint = "device"
)

// Point is where policies are enforced on the endpoint, by its own node. Behind an end that another plugin made, a
// container's packets are seen in its own namespace all the same; those of a VM pass below the pod's IP, and are seen
// on the node alone.
func (e WorkloadEndpoint) Point() PolicyPoint {
	switch {
	case e.HostEnd == HostEndRouted:
		return PointHost
	case e.Device != "":
		return PointDevice
	case e.Tap:
		return PointTap
	case e.HostEnd == HostEndPort:
		return PointPort
	case e.HostEnd == HostEndForeign && e.VM:
		return PointHost
	}
	return PointPod
}

// PolicyLink is the node's link at which policies are enforced; empty where that is not on the node.
func (e WorkloadEndpoint) PolicyLink() string {
	switch e.Point() {
	case PointHost, PointPort:
		return e.HostLink
	}
	return ""
}

// PolicyDevice is the device whose packets policies cannot see; empty where they can.
func (e WorkloadEndpoint) PolicyDevice() string {
	if e.Point() == PointDevice {
		return e.Device
	}
	return ""
}

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
func (e WorkloadEndpoint) Key() EndpointKey {
	return EndpointKey{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, UID: e.Pod.UID, IfName: e.IfName, Node: e.Node}
}

// String is "namespace/pod/interface".
func (k EndpointKey) String() string { return k.Namespace + "/" + k.Pod + "/" + k.IfName }

// Equal reports whether both say the same of an endpoint. A namespace is the one with the ID, whatever path it has.
func (e WorkloadEndpoint) Equal(o WorkloadEndpoint) bool {
	return e.Attachment == o.Attachment && e.Pod == o.Pod && e.Node == o.Node && e.Network == o.Network &&
		e.IfName == o.IfName &&
		slices.Equal(e.Addrs, o.Addrs) && e.Standby == o.Standby && e.HostLink == o.HostLink && e.HostEnd == o.HostEnd &&
		e.Tap == o.Tap &&
		e.Device == o.Device && e.VM == o.VM && e.NetnsID == o.NetnsID
}

// EqualInPolicy reports whether both are the same to policies.
func (e WorkloadEndpoint) EqualInPolicy(o WorkloadEndpoint) bool {
	return e.Key() == o.Key() && e.Network == o.Network && slices.Equal(e.Addrs, o.Addrs) && e.Point() == o.Point() &&
		e.PolicyLink() == o.PolicyLink() && e.PolicyDevice() == o.PolicyDevice()
}
