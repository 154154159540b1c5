// SPDX-License-Identifier: Apache-2.0

// Package shim forwards a CNI call to the agent: it sends the environment, stdin and the namespace's file descriptor
// over a unix socket and receives an exit code and stdout. It is all of weft-cni, which is started for every call, so
// the package uses package syscall: fmt, net and encoding/json would cost more than its work (decision 0016).
//
// Executed under the name of a plugin that only an agent runs (wire.AgentPlugins) it does the same, and passes that
// name. The caller is then another vendor's list, or a plugin that executes its IPAM plugin.
//
// # While the agent is away
//
// The agent is away if there is no socket, the connection is refused, or neither the call nor a ping is answered within
// 0.7 s. Then VERSION is answered by the shim as always, ADD, CHECK and GC fail with code 11 (try again later) and
// STATUS with 50, all in under a second. DEL is written to a queue next to the socket and succeeds: the agent executes
// it when it is back, before any other call for that attachment.
//
// The shim waits for a busy agent for up to wire.CallMillis (60 s).
package shim
