// SPDX-License-Identifier: Apache-2.0

// Package whereabouts reads what the plugin whereabouts stores in a cluster and on a node: its IPPools, reservations
// and NodeSlicePools, and its configuration file. It lists the options that have no effect with weft. It allocates
// nothing: blocks allocates addresses for its configurations, audit imports its allocations.
package whereabouts

// Type is its type in "ipam": {"type": …}.
const Type = "whereabouts"
