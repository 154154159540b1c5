// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes what weft has made on a node, when its agent has ended: the runtime's configuration and
// programs, links, routes, rules, nftables tables, changed settings, and the agent's files.
//
// Objects are found by their marks, not by a list: links by their alias, routes by their protocol, tables by their names,
// programs by their build information, configurations by their key "weft". So a node is also cleaned after another version
// of weft, or without a ledger. Files that later passes need (the ledger, the previous settings) are removed last, and
// every step is idempotent: a killed removal is repeated.
//
// Pods that run keep their interfaces, the routes to them and their addresses. As long as there are any on the node, the
// state that describes them stays, and with it, unless another vendor's network is configured, weft-cni and its
// configuration: without them the runtime could not stop these pods, and would declare the node not ready. Network
// policies are no longer enforced for them. Pods whose network is another vendor's alone are none of these.
package uninstall
