// SPDX-License-Identifier: Apache-2.0

// Package whereabouts reads what the plugin whereabouts leaves in a cluster and on a node: its IPPools, reservations
// and NodeSlicePools, its configuration file, and which of its options weft needs no more. It allocates nothing: blocks
// gives addresses for its configurations, audit takes over what it has given.
package whereabouts

// Type is its name in "ipam": {"type": …}.
const Type = "whereabouts"
