// SPDX-License-Identifier: Apache-2.0

// Package early does the ordinary CNI call before the Go runtime starts.
//
// # Why
//
// weft-cni is started once per call, and what it does is hand some bytes to the agent and back. A Go program starts four
// threads and a heap first: that costs three times as much as the whole rest of weft-cni, and on a busy node it is CPU
// time that pods wait for.
//
// # How
//
// weft-cni is linked with -E=_weft_early. That entry (a few lines of assembly) calls start on the stack the kernel gave,
// with a g that only says "there is room". start may use nothing that needs the runtime: no heap, no map, no
// goroutine, no defer, no interface method, only system calls and one block of zeroed memory. A test walks over the
// calls of the linked program and refuses any into the runtime but the few that are plain memory operations.
//
// Whatever is not the ordinary case is left to the ordinary program: start puts stdin back as it was (a memfd in its
// place) and the real entry of the Go runtime is jumped to, which knows nothing of all this. So there is one place for
// errors, the queue of DELs and everything rare: package shim. Without -E, or on another processor, weft-cni is
// that ordinary program alone and does exactly the same.
package early
