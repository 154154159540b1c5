// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol between weft-cni and the agent: one request and one response on a unix stream socket. It
// has few imports, because weft-cni is started for every CNI call.
//
// # Format
//
//	weft-cni → agent   header (16 bytes) · CNI_* variables as NAME=VALUE NUL · the configuration as it came on stdin
//	                   the network namespace is attached to the first byte as a file descriptor (SCM_RIGHTS)
//	agent → weft-cni   header (12 bytes) exit code · the output on stdout
//
// A caller that waits for long connects to a second socket (PingSocket). Its response, exit code 0 without stdout,
// means that the agent is running and busy.
//
// Numbers are big endian. The configuration is passed through unparsed, except for two scalar keys that weft-cni needs
// if the agent is not running (Field).
//
// # Versions
//
// A request has a version in its header. An agent does not execute, answer or drop a request of a version that it does
// not know: it says so (AppendOtherVersion), weft-cni then acts as without an agent, and a queued DEL of such a version
// stays in the queue for an agent that knows it. Exit codes above 255 are reserved for further such answers.
//
// A DEL that cannot be sent is stored as a file with the same request in the directory QueueDir.
package wire
