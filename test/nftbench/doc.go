// SPDX-License-Identifier: Apache-2.0

// Package nftbench measures kernel/nft against github.com/google/nftables with a generation guard beside it: the same
// tables, compiled by kernel/nft/lang for both, in namespaces of their own. It is a module of its own, so that weft
// does not require the library. How to run it, and what came of it, is in docs/decisions/0001-nft-rules-as-text.md.
package nftbench
