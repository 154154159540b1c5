// SPDX-License-Identifier: Apache-2.0

// Package scale measures one agent in a cluster of thousands of nodes, which exist only as objects of a real API
// server: its memory per pod, the latency from a write to enforcement, and the CPU time for pods that are created and
// deleted.
//
//	WEFT_SCALE=1 go test -count=1 -v -timeout 30m ./test/scale     5,000 nodes, 100,000 pods; some minutes
//
// TestManyAgents measures the API server's side: agents that only watch, many in one process (WEFT_AGENTS=5000).
//
// Without WEFT_SCALE the cluster is small, and the measurements are not meaningful.
package scale
