// SPDX-License-Identifier: Apache-2.0

// Package dir is a store in a directory of ordinary Kubernetes manifests: *.yaml, *.yml and *.json, several documents
// in a file and Lists allowed, subfolders and dot files ignored. Operators edit it while several processes read and
// write it.
//
// # Rules
//
//   - A read always returns the current content. Unchanged files are not parsed again, nor unchanged documents of a file
//     that did change. While the store is watched, the kernel says which files to look at: a read with thousands of
//     objects costs what a read with few does. What it does not report (a file that is mapped into memory, or mounted
//     onto a file) is seen within seconds; symbolic links, hard links and network file systems are looked at every time.
//   - An invalid file is reported with the line. Its last valid version, if any, stays in force until it is
//     fixed: a typo must not take a node out of the mesh. It is never written to.
//   - If two documents have one name, the one in the file that sorts first counts, and both are reported.
//   - A write replaces the one document it is about; the bytes of the other documents stay (comments inside the
//     replaced document are lost, those before it stay). Writers exclude each other by a lock on the directory itself,
//     so no lock file is left; readers need no lock, because a file is replaced by renaming a complete one over it.
//   - Nothing is fsynced: weft writes status, which is rewritten after a power loss.
package dir
