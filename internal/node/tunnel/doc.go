// SPDX-License-Identifier: Apache-2.0

// Package tunnel runs what of the mesh the kernel does not: packets in datagrams (tunnel/udp), WireGuard where the
// kernel has none, the commands of the back end extension. It also gives the kernel's WireGuard its keys and peers,
// since these are secrets that no plan holds.
//
// A Runner is reconcile's: each pass hands it all tunnels that should be, it starts, changes and stops. A tunnel that
// dies asks for a pass, so it runs again as soon as its device is there again. Nothing runs, and nothing is allocated,
// while no tunnel is wanted.
package tunnel
