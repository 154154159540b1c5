// SPDX-License-Identifier: Apache-2.0

// Package nftbench compares kernel/nft with github.com/google/nftables plus a check of the ruleset's generation: the
// same tables, compiled by kernel/nft/lang for both, in separate namespaces. It is a separate module, so that weft does
// not require the library. docs/design/decisions/0001-nft-rules-as-text.md says how to run it, and has the results.
package nftbench
