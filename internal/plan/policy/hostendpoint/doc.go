// SPDX-License-Identifier: Apache-2.0

// Package hostendpoint computes from Calico's objects which host endpoint each interface of a node has, which of them
// Calico's controllers would create for nodes, and which ports stay open at all of them. Package policy compiles the
// policies that select them. It is pure.
package hostendpoint
