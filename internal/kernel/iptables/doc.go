// SPDX-License-Identifier: Apache-2.0

// Package iptables makes chains and rules by the host's iptables programs, as other plugins that use those programs
// expect them. It is slow, and only for configurations that require it: a table is read by one process (iptables-save)
// and changed by another (iptables-restore --noflush), as one transaction.
//
// # Words
//
//   - An own chain belongs to one owner: Apply makes it contain exactly its rules, Remove deletes it.
//   - A shared chain is created if it is missing and never deleted: its maker is unknown, and a plugin that has just
//     found it would fail. The plugins that introduced these chains do the same.
//   - Two rules are equal when iptables-save prints the same words for them. A loose rule is not in the format of
//     iptables-save; it is checked by iptables -C, with one process each.
//
// # Concurrent changes
//
// Between reading and changing, another program may change the same table. iptables-restore then refuses what cannot be
// done as a whole (a chain that is created twice, a rule deleted twice), and the change is repeated from the read on.
// It does not refuse a rule that is added to a shared chain twice, so users of this package take a lock on the
// namespace for that, and for nothing else: the kernel frees deleted objects after an RCU wait, and the waits of many
// processes overlap.
package iptables
