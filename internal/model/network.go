// SPDX-License-Identifier: Apache-2.0

package model

import "encoding/json"

// NetworksAnnotation is the annotation with the networks that a pod requests (Multus, NetworkSelectionElement).
const NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"

// NetworkAttachment is a NetworkAttachmentDefinition: a network that pods may select by name.
type NetworkAttachment struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Config is the CNI configuration as written, of one plugin or a list; empty if it is in a file on the node.
	Config string `json:"config,omitempty"`
}

// String returns "namespace/name", as in pods' annotations and network status.
func (n NetworkAttachment) String() string { return n.Namespace + "/" + n.Name }

// PodRef identifies a pod.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"` // empty: any pod of that name
}

// String is "namespace/name".
func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// Event is a Kubernetes event about an object of the cluster.
type Event struct {
	Warning bool
	Reason  string // CamelCase, for programs
	Message string // for users
}

// Origin is the pod of an attachment, and how the pod selected the network.
type Origin struct {
	Pod PodRef `json:"pod"`
	// Network is the network's name for users: "namespace/name" of a NetworkAttachment, or a configuration's name.
	Network string `json:"network"`
	// Primary: the network is the pod's first one. Selection is the element of the pod's annotation for another one, as
	// JSON; it is empty for a network that the node's configuration attaches to every pod.
	Primary   bool            `json:"primary,omitempty"`
	Selection json.RawMessage `json:"asked,omitempty"`
	// RuntimeConf is the CNI configuration that the runtime passed: further networks are attached later with it. Only the
	// first network has it.
	RuntimeConf json.RawMessage `json:"call,omitempty"`
	// SinglePlugin: the runtime executed the network's plugin directly, in a configuration list with other plugins, or
	// Multus executed weft for it: weft does not manage the pod's further networks or its network status.
	SinglePlugin bool `json:"alone,omitempty"`
	// Annotations are those of the pod, and of its namespace, that the network's plugins read.
	Annotations [][2]string `json:"annotations,omitempty"`
	// NoVersion: the pod selected the network, and its configuration has no cniVersion.
	NoVersion bool `json:"noVersion,omitempty"`
	// Device is the ID of the interface's device, DeviceFile the device information file.
	Device     string `json:"device,omitempty"`
	DeviceFile string `json:"deviceFile,omitempty"`
	// VM is the VM that runs in the pod. Incoming: the VM runs on another node, and migrates into this pod. Keep is
	// whether its addresses stay with it.
	VM       *VMRef      `json:"vm,omitempty"`
	Incoming bool        `json:"incoming,omitempty"`
	Keep     KeepAddress `json:"keep,omitempty"`
}

// MarshalJSON encodes it like any structure; see state.List.
func (o Origin) MarshalJSON() ([]byte, error) {
	type plain Origin
	return json.Marshal(plain(o))
}
