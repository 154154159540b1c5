// SPDX-License-Identifier: Apache-2.0

// Package join joins a tap and a link, so that what arrives on one leaves on the other: a virtual machine has its pod's
// link that way. There are several ways, since no kernel has all of them and the best one depends on the links: eBPF
// programs, with or without a hop to the other end of a pair, a chain of nft, tc's mirred action.
package join
