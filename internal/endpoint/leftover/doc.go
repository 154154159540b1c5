// SPDX-License-Identifier: Apache-2.0

// Package leftover takes away what the reference plugins left in the node's namespace and would themselves take away on
// DEL, or forget for ever: iptables chains, rules of nft tables. Attachments that those plugins made are taken over by
// weft in the middle of their lives, and it is weft's DEL or GC that ends them.
//
// Nothing is taken but what says in its own words whose it is: by a comment, or a name that is made of the network and
// the container. Every finder looks at the kernel's list of nft chains first, which costs one question; the iptables
// programs are executed only when that list, or the kernel's list of the older iptables' tables, says that there is
// something.
package leftover
