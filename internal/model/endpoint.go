// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
)

// WorkloadEndpoint is one interface of a pod or a VM. Package attach creates it, network policy is enforced on it, and
// its node publishes it to its peers. Of another node's endpoints only the pod, the node, the network, the names and
// the addresses are known.
type WorkloadEndpoint struct {
	// Attachment is the key of the endpoint's attachment.
	Attachment AttachmentKey
	Pod        PodRef
	Node       string
	// Network is empty for the cluster's network, else "namespace/name" of a NetworkAttachment.
	Network string
	IfName  string
	// Addrs are empty until they are known.
	Addrs []netip.Addr
	// Standby: another endpoint uses the addresses, and they are not published.
	Standby bool

	// HostLink is the node's end of the interface, and HostEnd what that end is.
	HostLink string
	HostEnd  HostEnd
	// Tap: the interface is a macvtap: a hypervisor's frames bypass the pod's IP layer.
	Tap bool
	// Device is the PCI address of a device that is passed through to a VM: the kernel does not see its packets.
	Device string
	// VM: a VM may be behind the pod's interface.
	VM bool

	// Container: the endpoint is one of a container without a Pod object, such as Docker's. Pod is then a name of its own,
	// and Labels are the container's labels; they are empty until they are known, and nothing passes until then.
	Container bool
	Labels    map[string]string

	// Netns is the path of the pod's network namespace, and NetnsID identifies the namespace.
	Netns   string
	NetnsID uint64
}

// HostEnd is the kind of the node's end of an interface.
type HostEnd string

// The kinds. The empty one: there is none, as for a macvlan or a device.
const (
	// HostEndRouted: all packets of the interface are routed through it.
	HostEndRouted HostEnd = "routed"
	// HostEndPort: it is a port of a bridge.
	HostEndPort HostEnd = "port"
	// HostEndForeign: another plugin created it, and it is no port.
	HostEndForeign HostEnd = "foreign"
)

// PolicyPoint is where policies are enforced on an endpoint.
type PolicyPoint string

// The places.
const (
	PointHost PolicyPoint = "host" // in the node's namespace: the interface is routed there
	PointPod  PolicyPoint = "pod"  // in the pod's namespace
	PointTap  PolicyPoint = "tap"  // in the pod's namespace, below IP: a macvtap
	PointPort PolicyPoint = "port" // in the node's namespace, at a port of a bridge
	// PointDevice: policies cannot be enforced, because the device is passed through to a VM.
	PointDevice PolicyPoint = "device"
)

// Point returns where the endpoint's node enforces policies on it. If another plugin created the node's end, a
// container's packets can be filtered in its own namespace; those of a VM bypass the pod's IP layer and can be filtered
// on the node only.
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

// PolicyLink returns the node's link at which policies are enforced; empty if that is not on the node.
func (e WorkloadEndpoint) PolicyLink() string {
	switch e.Point() {
	case PointHost, PointPort:
		return e.HostLink
	}
	return ""
}

// PolicyDevice returns the device on which policies cannot be enforced; empty if they can.
func (e WorkloadEndpoint) PolicyDevice() string {
	if e.Point() == PointDevice {
		return e.Device
	}
	return ""
}

// EndpointKey identifies an endpoint.
type EndpointKey struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// UID distinguishes a pod from an earlier one of that name; both may have interfaces for a moment.
	UID    string `json:"uid,omitempty"`
	IfName string `json:"ifName"`
	// Node is the node that publishes the endpoint: no node removes another's.
	Node string `json:"node,omitempty"`
}

// Key returns the endpoint's identity.
func (e WorkloadEndpoint) Key() EndpointKey {
	return EndpointKey{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, UID: e.Pod.UID, IfName: e.IfName, Node: e.Node}
}

// String is "namespace/pod/interface".
func (k EndpointKey) String() string { return k.Namespace + "/" + k.Pod + "/" + k.IfName }

// Equal reports whether both are equal. Network namespaces are compared by ID, not by path.
func (e WorkloadEndpoint) Equal(o WorkloadEndpoint) bool {
	return e.Attachment == o.Attachment && e.Pod == o.Pod && e.Node == o.Node && e.Network == o.Network &&
		e.IfName == o.IfName &&
		slices.Equal(e.Addrs, o.Addrs) && e.Standby == o.Standby && e.HostLink == o.HostLink && e.HostEnd == o.HostEnd &&
		e.Tap == o.Tap &&
		e.Device == o.Device && e.VM == o.VM && e.NetnsID == o.NetnsID
}

// EqualInPolicy reports whether both are equal in everything that policies depend on.
func (e WorkloadEndpoint) EqualInPolicy(o WorkloadEndpoint) bool {
	return e.Key() == o.Key() && e.Network == o.Network && slices.Equal(e.Addrs, o.Addrs) && e.Point() == o.Point() &&
		e.PolicyLink() == o.PolicyLink() && e.PolicyDevice() == o.PolicyDevice()
}
