// SPDX-License-Identifier: Apache-2.0

// Package dir is a store that is a directory of ordinary Kubernetes manifests: *.yaml, *.yml and *.json, several
// documents in a file and Lists allowed, subfolders and dot files not looked at. People edit it with their editors
// while agents and sandbox runtimes of several processes read and write it.
//
// # Rules
//
//   - A read always shows what the files say now; files that did not change are not parsed again.
//   - A file with a fault is named with its line. What it said before, if anything, stays in force until it is put
//     right: a typo in an editor must not take a node out of the mesh. It is never written to.
//   - When two documents have one name, the one in the file that sorts first counts, and both are told about.
//   - A write replaces the one document it is about; the bytes of the other documents stay (comments inside the
//     replaced document are lost, those before it stay). Writers exclude each other by a lock on the directory itself,
//     so no lock file is left; readers need no lock, because a file is replaced by renaming a complete one over it.
//   - Nothing is fsynced: what weft writes is status, which is written anew after a power loss.
package dir
