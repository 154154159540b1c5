// SPDX-License-Identifier: Apache-2.0

// Package tunnel runs the parts of the mesh that are not in the kernel: packets in datagrams (tunnel/udp), WireGuard
// if the kernel has none, and the commands of the backend extension. It also configures the kernel's WireGuard, since
// plans contain no secrets such as its keys.
//
// A Runner is used by reconcile: each pass calls it with all wanted tunnels, and it starts, changes and stops them.
// When a tunnel dies it requests a pass, which runs it again once its device exists. While no tunnel is wanted,
// nothing runs and nothing is allocated.
package tunnel
