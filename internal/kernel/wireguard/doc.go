// SPDX-License-Identifier: Apache-2.0

// Package wireguard configures the keys and peers of the kernel's WireGuard devices, over generic netlink. The devices
// themselves are links like all others (internal/kernel). Keys are never printed.
package wireguard
