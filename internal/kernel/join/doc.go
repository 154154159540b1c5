// SPDX-License-Identifier: Apache-2.0

// Package join connects a tap and a link, so that frames that arrive on one leave on the other: a VM uses its pod's
// link that way. There are several methods, because not every kernel supports all of them and the best one depends on
// the links: eBPF programs, redirecting to the link or to the other end of a pair, a chain of nft, tc's mirred action.
package join
