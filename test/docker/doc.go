// SPDX-License-Identifier: Apache-2.0

// Package docker tests weft-docker with a real dockerd: each node is a network namespace with an agent, the driver and a
// dockerd with the storage driver vfs.
package docker
