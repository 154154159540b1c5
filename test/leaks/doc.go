// SPDX-License-Identifier: Apache-2.0

// Package leaks holds tests only: a node with the chain of a realistic pod (bridge, host-local, portmap, bandwidth,
// tuning, firewall), driven as a container runtime drives it, by libcni; plugins, shims and agents are killed at random
// moments, and what is left over afterwards is counted thing by thing. Every count must be zero.
//
// The number of faults of each kind is WEFT_LEAKS_N, that of parallel pods WEFT_LEAKS_PODS, of which WEFT_LEAKS_AT_ONCE
// call the agent at the same time. WEFT_LEAKS_BIN_DIR makes the same table for another vendor's plugins, in which
// something may leak.
package leaks
