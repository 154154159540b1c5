// SPDX-License-Identifier: Apache-2.0

// Package iptables makes chains and rules by the host's iptables programs, as other plugins that use those programs
// expect to see them. It is the slow way, for those who ask for it: a table is read by one process (iptables-save) and
// changed by another (iptables-restore --noflush), as one transaction.
//
// # Words
//
//   - An own chain belongs to one owner: Apply makes it hold exactly its rules, Remove deletes it.
//   - A shared chain is made where it is missing and never deleted: nobody can tell who made it, and a plugin that has
//     just looked for it would fail. So do the plugins that invented these chains.
//   - Two rules are the same when iptables-save prints the same words for them. A loose rule is in words that
//     iptables-save does not use; it is looked for by iptables -C, one process each.
//
// # Others
//
// Between reading and changing, another program may change the same table. What then cannot be done as a whole (a chain
// that is made twice, a rule deleted twice) is refused by iptables-restore and tried again from the reading on. That a
// rule is put into a shared chain twice is not refused, so users of this package take turns in a namespace for that.
// For nothing else: what a program of iptables has deleted is freed behind an RCU wait, and the waits of many go on at
// once.
package iptables
