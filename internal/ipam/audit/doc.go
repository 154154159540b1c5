// SPDX-License-Identifier: Apache-2.0

// Package audit compares what the cluster's store says of addresses with what pods, nodes and other programs say of
// them. It works on objects alone and runs beside the engines of package blocks, never inside one.
//
//   - Inspect reads pools, blocks, claims and pods into a Report, whose Findings say what is wrong or left over; some
//     can be repaired. Report.Compare adds what a node's memory, ledger and kernel do not agree on, Report.Usage
//     counts.
//   - PlanImport says which addresses whereabouts has allocated, and Import.Apply reserves them in the pools.
//   - ReadPods tells which pod says that it has an address: whoever moves or releases pools asks it first.
//
// Every repair is a compare-and-swap on the version that was inspected, or is decided anew on the object as it is now.
package audit
