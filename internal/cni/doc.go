// SPDX-License-Identifier: Apache-2.0

// Package cni implements the CNI protocol: calls (environment and standard input), network configurations, results and
// errors, in every version from 0.1.0 to 1.1.0. The rest of weft uses the values of package model only.
//
// # Vocabulary
//
//   - Call: one execution of a plugin: the verb, the attachment, the configuration.
//   - Network: a configuration list; a single plugin's configuration becomes a list of one.
//   - Derive: what a runtime does to a list before it calls its plugins (SPEC section 3).
//   - Lint: finds what the specification permits but is probably not intended.
//
// All input is untrusted and bounded: see maxConf. The package is loaded for every call of a plugin, so it imports
// nothing heavy.
package cni

// maxConf bounds a configuration or a result, in bytes. A list with a thousand plugins stays below it.
const maxConf = 1 << 20
