// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files in one step: a reader finds the old content or the new content, never a part of
// either.
//
// The content is written to a temporary file in the same directory, which is then renamed over the file. Each call
// names the Durability that its file needs:
//
//	CrashSafe   the file is whole whenever the process is killed
//	Durable     it is also on disk when the call returns, and whole after a power loss
//
// Durable waits twice for the disk (content, then directory). Which files of weft are durable, and why, is the table in
// docs/durability.md; a test of internal/house compares it with the calls.
//
// # Temporary files
//
// The temporary file of NAME is ".weft-new-NAME.tmp". Its writer holds an flock on it, which the kernel releases when
// the process dies. So a temporary file without a lock is what a killed process left: the next call for the same file
// removes it, and Sweep removes all that are in a directory. A writer that finds the name taken by a live one uses
// ".weft-new-NAME.1.tmp" and so on: writers of the same file never wait for each other, and the last rename wins.
//
// Whoever lists a directory in which files are replaced skips these names (IsTemp); a suffix of its own does it as
// well.
//
// The package imports the standard library alone, so that every program can use it. internal/cni/shim does not:
// weft-cni is made of the standard library, shim and wire. internal/ipam/hostlocal does not either: the files in its
// directory are the reference plugin's, which other plugins read and create, too.
package atomicfile
