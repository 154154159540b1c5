// SPDX-License-Identifier: Apache-2.0

// Package dhcp holds only tests: a network with a real DHCP server (Debian's dnsmasq) and containers; weft's plugins,
// daemon and agent with the reference plugin dhcp and its daemon, in every combination. Daemons and agents are killed,
// and leftovers are counted on the node and at the server.
package dhcp
