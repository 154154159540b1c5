// SPDX-License-Identifier: Apache-2.0

// Package dhcp assigns addresses of DHCP servers on the container's network, as the reference plugin of that name: it
// decodes the settings, and calls a daemon. The leases are managed in dhcp/lease, by the agent or `weft dhcp daemon`;
// the calls between the two are in dhcp/rpc, the DHCP clients in dhcp/exchange.
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
