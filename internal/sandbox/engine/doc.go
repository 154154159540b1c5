// SPDX-License-Identifier: Apache-2.0

// Package engine implements the pod sandbox and container calls of CRI, in the same order of steps as the kubelet's
// runtimes.
//
// It stores everything in its state directory, so that it can be killed at any time:
//
//	names/NAMESPACE_NAME_UID_ATTEMPT   the ID of the sandbox with this name
//	sandboxes/ID/config.json           the sandbox's record
//	sandboxes/ID/networks.json         the attachments; written before the first ADD
//	sandboxes/ID/ready.json            the network's result; exists only while the network is ready
//	sandboxes/ID/pause.json, lock      the process that holds the namespaces
//	sandboxes/ID/containers/CID/…      see package container
//	checkpoints/ID.json                see package checkpoint
//	netns/ID                           the network namespace, as a bind mount
package engine
