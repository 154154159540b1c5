// SPDX-License-Identifier: Apache-2.0

// Package scale measures one agent in a cluster of thousands of nodes that are there as objects alone, of a real API
// server: what it keeps of each pod, how long a write takes until it is enforced, and what pods that come and go cost
// it.
//
//	WEFT_SCALE=1 go test -count=1 -v -timeout 30m ./test/scale     5,000 nodes, 100,000 pods; some minutes
//
// Without WEFT_SCALE the cluster is small, and the figures say nothing.
package scale
