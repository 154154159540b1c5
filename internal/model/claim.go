// SPDX-License-Identifier: Apache-2.0

package model

// AddressClaim is addresses that outlive pods. Addresses are texts as the object has them: whether one that cannot be
// parsed is an error, or counts as in use, is for each reader to decide.
type AddressClaim struct {
	Namespace, Name string
	// Pools are the pools that the addresses are to come from, and Requested certain addresses that are wanted.
	Pools, Requested []string
	// VM is the interface of a VM that the addresses are kept for; the zero value: the claim is not a VM's.
	VM ClaimedInterface
	// Owned: the object has owners, and the API server deletes it after them.
	Owned bool
	// Addresses are those that the claim has, and Node where they were used last.
	Addresses []string
	Node      string
}

// ClaimedInterface names an interface of a VM.
type ClaimedInterface struct {
	// Name is the VM's; Kind and UID are its object's, empty where it has none.
	Name, Kind, UID string
	// Network is the network's name, and IfName the interface's in the pod.
	Network, IfName string
}
