// SPDX-License-Identifier: Apache-2.0

// Package leaks holds only tests: a node with the chain of a realistic pod (bridge, host-local, portmap, bandwidth,
// tuning, firewall), called through libcni as by a container runtime; plugins, shims and agents are killed at random
// moments, and leaked objects are counted by kind. Every count must be zero.
//
// WEFT_LEAKS_N is the number of kills of each kind, WEFT_LEAKS_PODS the number of pods, and WEFT_LEAKS_AT_ONCE that of
// concurrent calls. With WEFT_LEAKS_BIN_DIR the table is printed for another vendor's plugins, and leaks are no errors.
package leaks
