// SPDX-License-Identifier: Apache-2.0

// Package process runs the tunnels that forward packets in user space (udp, and WireGuard if the kernel has none) in a
// process that outlives the agent: while an agent is replaced, packets and WireGuard's sessions continue.
//
// A Client, in the agent, connects to the socket, and starts the process if none listens. A Server, in the process,
// runs the tunnels of the last request until another agent changes them.
//
// An agent whose children end with it, in a container, starts none. It uses a permanent process, of another container,
// as soon as one listens, and runs the tunnels itself while there is none. A permanent process does not end for agents:
// it releases the tunnels' devices, and waits for the next agent.
//
// # Versions
//
// The agent that is started next may be older or newer than the process. Each message is a line of JSON. The first one
// of each side has the version of the others; a process whose version the agent does not know, or that does not know a
// field of a request, is ended and started again from the agent's program; of a permanent one the agent takes the
// tunnels over. The messages hello and end have the same form in all versions.
//
// An agent of a version that has no such process cannot open the tunnels' devices while the process has them. An agent
// connects before it locks the network namespace (package agentlock); so if the namespace is locked while no agent is
// connected, that agent is another one, and the process ends.
package process
