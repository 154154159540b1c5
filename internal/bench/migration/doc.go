// SPDX-License-Identifier: Apache-2.0

// Package migration measures what a live migration costs the connections of a virtual machine. Three nodes with agents
// stand on one wire. On the third one is a peer; between the other two a real guest under QEMU goes to and fro, with
// the pod's address and a policy that lets the peer call it and lets itself send to one port of the peer. It sends a
// packet each 5 ms, and answers lines of a connection that the peer has begun: what the machine sends on that is
// allowed only as long as the connection is known.
package migration
