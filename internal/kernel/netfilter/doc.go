// SPDX-License-Identifier: Apache-2.0

// Package netfilter holds the packet filters of one namespace: nft, the iptables programs of both kinds, and the host's
// firewalld. Each opens its socket, or executes its program, when it is first needed.
package netfilter
