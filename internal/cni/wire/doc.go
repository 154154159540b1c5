// SPDX-License-Identifier: Apache-2.0

// Package wire holds the words between weft-cni and the agent: one request, one answer, on a unix stream socket. It
// imports next to nothing, because weft-cni starts once per CNI call.
//
// # The picture
//
//	weft-cni → agent   header (16 bytes) · CNI_* variables as NAME=VALUE NUL · the configuration as it came on stdin
//	                   the network namespace travels beside the first byte as a descriptor (SCM_RIGHTS)
//	agent → weft-cni   header (12 bytes) exit code · what belongs on stdout
//
// A caller that waits for long sends a ping, a header alone, on a second connection. Its answer, exit code 0 and
// nothing more, tells that the agent is busy and not away: the call came before the ping, so it has been taken.
//
// Numbers are big endian. Bytes are handed through: nobody here parses the configuration, but for two scalar keys that
// weft-cni needs while the agent is away (Field).
//
// A DEL that cannot be handed over is kept as a file, holding the same request, in the directory QueueDir.
package wire
