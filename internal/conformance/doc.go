// SPDX-License-Identifier: Apache-2.0

// Package conformance tests CNI plugins of any vendor against the specification. It executes them as a runtime would,
// in temporary namespaces, and inspects the kernel and files independently of weft's code.
//
//   - An item is a requirement of the specification, with its number in docs/design/conformance.md.
//   - A subject is a plugin type that the kit can configure, and whose effects it can verify.
//   - A check tests an item on one subject, in its own world: a node's namespace and its pods.
//   - A row is the outcome of a check: pass, fail with what was seen, not supported by this kernel, or not applicable with
//     the reason.
//
// DEL is clean if a second ADD and DEL leave no difference: bridges, tables and chains that pods share may stay,
// objects of a single pod may not.
//
// The runtime's items are checked on weft's callers, with recording plugins.
package conformance
