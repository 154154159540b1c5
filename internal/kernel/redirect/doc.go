// SPDX-License-Identifier: Apache-2.0

// Package redirect joins two links by eBPF: frames that arrive on one leave over the other. It assembles its programs,
// instruction by instruction, for two particular links; they have no maps, and no other state.
//
// # Lifetime
//
// A program is attached to its link (as a filter of its arriving packets, or by tcx if there are no such filters)
// without a reference in a process: it exists as long as the link, whichever processes end or start meanwhile. It is
// identified by its name, which is weft's mark and a digest of its instructions; so a different program has another
// name and is replaced.
//
// # What they do
//
// A tap's program parses as little as possible: the protocol, and the destination for the few protocols that the tap's
// side answers itself. All other frames go to the other link. Frames that it cannot parse go there, too, where the
// usual policy applies to them.
package redirect
