// SPDX-License-Identifier: Apache-2.0

// Package workload changes what runs in a lab that is up: it applies and deletes manifests, scales Deployments and restarts
// pods. It changes objects of the lab's store only, one at a time, and waits until the nodes have followed: a command that
// was killed is completed by calling it again.
package workload
