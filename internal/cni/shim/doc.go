// SPDX-License-Identifier: Apache-2.0

// Package shim hands a CNI call to the agent: environment, stdin and the namespace's descriptor go over a unix socket,
// an exit code and stdout come back. It is all that weft-cni does, and weft-cni starts once per call, so this package
// speaks to the kernel by package syscall: fmt, net and encoding/json would cost more than its work (decision 0016).
//
// By the link names of plugins that only an agent runs (wire.AgentPlugins) it does the same, and says in whose name:
// another vendor's list, or a plugin that has an IPAM plugin executed, is what calls then.
//
// # While the agent is away
//
// Away means: no socket, refused, or neither an answer nor one to a ping within 0.7 s. Then VERSION is answered here as
// always, ADD, CHECK and GC fail with code 11 (try again later) and STATUS with 50, all in under a second; DEL is
// written to a queue beside the socket and reported done: the agent does it when it is back, before anything else of
// that attachment.
//
// An agent that is there but has no answer yet is waited for, but no longer than wire.CallMillis (60 s).
package shim
