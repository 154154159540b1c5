// SPDX-License-Identifier: Apache-2.0

package model

import "encoding/json"

// NetworkAttachment is a NetworkAttachmentDefinition: a network that pods may ask for by its name.
type NetworkAttachment struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Config is the CNI configuration as it was written, one plugin's or a list; empty when a file on the node has it.
	Config string `json:"config,omitempty"`
}

// String is "namespace/name", as annotations and the status of pods name it.
func (n NetworkAttachment) String() string { return n.Namespace + "/" + n.Name }

// PodRef names a pod beyond doubt.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"` // empty: whatever pod has the name
}

// String is "namespace/name".
func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// Event is something that its owner should hear about an object of the cluster.
type Event struct {
	Warning bool
	Reason  string // CamelCase, for programs
	Message string // for people
}

// Origin says why an attachment exists: which pod has it, and in which words.
type Origin struct {
	Pod PodRef `json:"pod"`
	// Network is what people call the network: "namespace/name" of a NetworkAttachment, or a configuration's name.
	Network string `json:"network"`
	// Primary is the pod's first network, Asked what the pod's annotation says of another one, as JSON; a network that the
	// node's configuration gives to every pod is neither.
	Primary bool            `json:"primary,omitempty"`
	Asked   json.RawMessage `json:"asked,omitempty"`
	// Call is the runtime's own configuration: with it, further networks are attached later. Only the first network has
	// it.
	Call json.RawMessage `json:"call,omitempty"`
	// Alone tells that a runtime has executed the network's plugin by itself, in a list of others: the pod's further
	// networks, and its network status, are not weft's.
	Alone bool `json:"alone,omitempty"`
	// Annotations are those of the pod, and of its namespace, that the network's plugins read.
	Annotations [][2]string `json:"annotations,omitempty"`
	// NoVersion tells that the network is one that the pod chose, and that its configuration has no cniVersion.
	NoVersion bool `json:"noVersion,omitempty"`
	// Device is the device that the interface is made of, DeviceFile the file that tells of it.
	Device     string `json:"device,omitempty"`
	DeviceFile string `json:"deviceFile,omitempty"`
	// VM is the virtual machine that the pod is there for. Incoming: the machine runs elsewhere, and migrates into this
	// pod. Keep says whether its addresses stay with it.
	VM       *VMRef      `json:"vm,omitempty"`
	Incoming bool        `json:"incoming,omitempty"`
	Keep     KeepAddress `json:"keep,omitempty"`
}
