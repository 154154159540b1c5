// SPDX-License-Identifier: Apache-2.0

// Package cleanup removes what the reference plugins have left in the node's namespace: iptables chains, rules of
// nftables tables. Weft takes over attachments that those plugins made, so weft's DEL or GC removes what they would
// have removed, or leaked. It also removes what Calico has left.
//
// Only objects that identify their owner are removed: by a comment, or by a name derived from the network and the
// container. Every remover checks the kernel's list of nftables chains first, which costs one request. The iptables
// programs are executed only if that list, or the kernel's list of legacy tables, has matching entries.
package cleanup
