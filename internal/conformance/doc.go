// SPDX-License-Identifier: Apache-2.0

// Package conformance judges CNI plugins of any vendor by the words of the specification. It executes them as a runtime
// would, in throw-away namespaces, and looks at the kernel and at files with readers of its own: never with weft's.
//
//   - An item is a sentence of the specification, with its number in docs/conformance.md.
//   - A subject is a plugin type that the kit knows how to configure: what it must be given, and what its work looks
//     like.
//   - A check is how an item is judged on one subject, in a world of its own: a node's namespace and its pods.
//   - A row is what a check has found: pass, fail with what was seen, not supported by this kernel, or not applicable
//     with the reason.
//
// A plugin leaves a node as it was when a second ADD and DEL change nothing that the first had not: bridges, tables and
// chains that all pods share may stay, and nothing that is of one pod may.
//
// Items of the runtime's side are judged on weft's callers, with recording plugins.
package conformance
