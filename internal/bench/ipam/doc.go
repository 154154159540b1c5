// SPDX-License-Identifier: Apache-2.0

// Package ipam measures how fast addresses are given: recorded allocations on one node, and claims of blocks by many
// agents against one store.
//
// A recorded allocation is what an ADD does for its address: the engine chooses it, the record with it is in the
// ledger's file before the call returns, and it is marked as done. After the run the ledger is opened again, and what
// it lacks of the answers, or has twice, is an error.
package ipam
