// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files in one step: a reader finds the old content or the new content, never a part of
// either.
//
// The content is written to a temporary file in the same directory, which is then renamed over the file. Each call
// names the Durability that its file needs:
//
//	CrashSafe   the file is complete at whatever moment the process is killed
//	Durable     it is also on disk when the call returns, and complete after a power loss
//
// Durable waits for the disk twice (content, then directory). The table in docs/design/durability.md lists which files of weft
// are durable, and why; a test of internal/archtest compares it with the calls.
//
// # Temporary files
//
// The temporary file of NAME is ".weft-new-NAME.tmp". Its writer has an flock on it, which the kernel releases when the
// process ends. So a temporary file without a lock was left by a killed process: the next call for the same file removes
// it, and Sweep removes all such files of a directory. A writer that finds the name in use by a live one uses
// ".weft-new-NAME.1.tmp" and so on: writers of the same file never wait for each other, and the last rename wins.
//
// Code that lists a directory in which files are replaced skips these names (IsTemp), or selects files by their own
// suffix.
//
// The package imports only the standard library, so that every program can use it. internal/cni/shim does not: weft-cni
// consists of the standard library, shim and wire. internal/ipam/hostlocal does not either: the files in its directory
// are those of the reference plugin, which other plugins read and create, too.
package atomicfile
