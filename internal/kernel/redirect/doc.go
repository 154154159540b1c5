// SPDX-License-Identifier: Apache-2.0

// Package redirect joins two links by eBPF: what arrives on one leaves over the other. Its programs are put together
// here, instruction by instruction, for the two links that they are about; they have no maps, so that they are all
// there is.
//
// # Where they live
//
// A program is attached to its link (a filter of its arriving packets, or tcx where there are no such filters) without
// an object of a process that would hold it: it lives as long as the link, whoever ends or starts meanwhile. It is
// known by its name, which is weft's mark and a digest of its instructions; so one that does something else than is
// wanted has another name and is replaced.
//
// # What they do
//
// A tap's program looks at no more than it must: the protocol, and for the few that the tap's side answers for itself
// whom they are for. All else goes on to the other link. What it cannot read goes there, too: who sends that is judged
// there, as anybody is.
package redirect
