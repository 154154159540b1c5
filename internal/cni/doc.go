// SPDX-License-Identifier: Apache-2.0

// Package cni speaks the words of the CNI protocol: calls (environment and standard input), network configurations,
// results and errors, in every version from 0.1.0 to 1.1.0. Inside weft only model's values are used; this is the
// border.
//
// # Vocabulary
//
//   - Call: one execution of a plugin: the verb, the attachment, the configuration.
//   - Network: a configuration list; a single plugin's configuration becomes a list of one.
//   - Derive: what a runtime does to a list before it calls its plugins (SPEC section 3).
//   - Lint: what the specification does not forbid but nobody wants.
//
// Everything here is read from outside and bounded: see maxConf. It starts with every call of a plugin, so it imports
// nothing heavy.
package cni

// maxConf bounds a configuration or a result, in bytes. A list with a thousand plugins stays below it.
const maxConf = 1 << 20
