// SPDX-License-Identifier: Apache-2.0

// Package engine plays the container runtime (CRI): it runs and stops pod sandboxes and the containers in them, in the
// order of steps in which a kubelet's runtime does.
//
// What it knows lies in its state directory, so that it can be killed at any moment:
//
//	names/NAMESPACE_NAME_UID_ATTEMPT   the id of the sandbox that has the name
//	sandboxes/ID/config.json           what the sandbox is made from
//	sandboxes/ID/networks.json         what is asked of which network; written before it is asked
//	sandboxes/ID/ready.json            what the networks gave; there only while the network is ready
//	sandboxes/ID/pause.json, lock      the process that holds the namespaces
//	sandboxes/ID/containers/CID/…      see package container
//	checkpoints/ID.json                see package checkpoint
//	netns/ID                           the network namespace, bound
package engine
