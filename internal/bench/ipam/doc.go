// SPDX-License-Identifier: Apache-2.0

// Package ipam measures the rate of address allocations: recorded allocations on one node, and block claims by many
// agents against one datastore.
//
// A recorded allocation is an ADD's work for its address: the engine allocates it, the record is in the ledger's file
// before the call returns, and the record is marked as done. After the run the ledger is opened again; a missing or
// duplicate allocation is an error.
package ipam
