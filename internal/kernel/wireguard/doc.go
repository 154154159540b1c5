// SPDX-License-Identifier: Apache-2.0

// Package wireguard gives the kernel's WireGuard devices their keys and peers, over generic netlink. The devices
// themselves are links as all others (internal/kernel). Keys stay out of everything that is printed.
package wireguard
