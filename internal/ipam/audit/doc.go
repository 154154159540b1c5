// SPDX-License-Identifier: Apache-2.0

// Package audit compares the addresses in the datastore with those that pods, nodes and other programs report. It works
// on objects only, without an engine of package blocks.
//
//   - Inspect reads pools, blocks, claims and pods into a Report, whose Findings say what is wrong or left over; some
//     can be repaired. Report.Compare adds what a node's memory, ledger and kernel do not agree on, Report.Usage
//     counts.
//   - PlanImport says which addresses whereabouts has allocated, and Import.Apply reserves them in the pools.
//   - ReadPods returns which pods report an address: programs that move or release pools check it first.
//
// Every repair is a compare-and-swap on the version that was inspected, or is decided again on the current object.
package audit
