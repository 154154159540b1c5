// SPDX-License-Identifier: Apache-2.0

// Package dhcp gives addresses from DHCP servers on the container's wire, as the reference plugin of that name: it
// reads the settings, and asks a daemon for what they say. Whoever keeps the leases (the agent, or `weft dhcp daemon`)
// is in dhcp/lease; the words between the two are in dhcp/rpc, those on the wire in dhcp/exchange.
package dhcp

// Type is the allocator's name in "ipam": {"type": …}.
const Type = "dhcp"

// Keys are the options of the reference plugin, and those that choose the families, which are weft's.
func Keys() []string {
	return []string{
		"type", "daemonSocketPath", "provide[].option", "provide[].value", "provide[].fromArg", "request[].option",
		"request[].skipDefault", "priority", "ipv4", "ipv6",
	}
}
