// SPDX-License-Identifier: Apache-2.0

// Package migration measures the effect of live migrations on the connections of a VM. Three nodes with agents share
// one wire. The third one has a peer; a real guest under QEMU migrates between the other two and back, with the pod's
// address and a policy that allows the peer to connect to it, and itself to send to one port of the peer. It sends a
// packet every 5 ms, and responds on a connection that the peer has opened: those packets are allowed only while the
// connection is tracked.
//
// On one such node it measures an agent, too, while VMs are idle.
package migration
