// SPDX-License-Identifier: Apache-2.0

package model

// AddressClaim is a set of addresses that outlive pods. Addresses are the object's unparsed texts: a reader decides
// whether an invalid one is an error or counts as in use.
type AddressClaim struct {
	Namespace, Name string
	// Pools are the pools to allocate from, and Requested are specific addresses to allocate.
	Pools, Requested []string
	// VM is the interface of a VM that the addresses belong to; the zero value: the claim is not a VM's.
	VM ClaimedInterface
	// Owned: the object has owner references, and the API server deletes it after its owners.
	Owned bool
	// Addresses are those of the claim, and Node is where they were used last.
	Addresses []string
	Node      string
}

// ClaimedInterface names an interface of a VM.
type ClaimedInterface struct {
	// Name is the VM's name; Kind and UID are its object's, empty if it has none.
	Name, Kind, UID string
	// Network is the network's name, and IfName the interface's name in the pod.
	Network, IfName string
}
