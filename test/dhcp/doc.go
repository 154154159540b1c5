// SPDX-License-Identifier: Apache-2.0

// Package dhcp holds tests only: a wire with a real DHCP server (Debian's dnsmasq) and containers on it; weft's
// plugins, its daemon and its agent on one side, the reference plugin dhcp and its daemon on the other, in every
// combination; daemons and agents are killed, and what is left over is counted, here and at the server.
package dhcp
