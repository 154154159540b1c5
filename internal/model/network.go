// SPDX-License-Identifier: Apache-2.0

package model

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
