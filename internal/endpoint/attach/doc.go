// SPDX-License-Identifier: Apache-2.0

// Package attach is the life of one attachment of a container to a network: promise, plan, apply, record, and the undo
// of all that. It treats a configuration list as a whole.
//
//	ADD   validate → promise (pending) → IPAM → plan → promise the plan → apply → …again after each cut… → done
//	DEL   releasing → undo in reverse, several in one pass over the kernel → forget
//	CHECK plan's fragment against the kernel, IPAM, foreign plugins
//	GC    undo every attachment of the network that nobody calls valid
//
// # Parts
//
// Attacher is the front: it has the verbs. Each part names what it needs, and knows nothing of those that are built
// upon it.
//
//	adder      ADD: a batch of runs, in groups; promises, asks for addresses, plans, applies
//	deleter    DEL by the record; deriver, DEL of what nothing is recorded of
//	collector  GC
//	checker    CHECK and STATUS
//	recoverer  what a killed process left
//	repairer   finished attachments stay as they were made: index of objects, queue, drift
//	switcher   which of two attachments of a virtual machine has the addresses
//	undoer     the acts of a record, backwards: for all that end something
//	releaseQueue  what a fast DEL leaves: dead links, then shared objects without owners
//
// Under them are recordStore (the records, and who goes by them), lockSet, namespaces, catalog (what a configuration
// says by itself) and resolver (what it says on this node), delegator (foreign plugins), policyHook, machinesIn
// (virtual machines in containers), unmanaged (addresses that no IPAM gave), dscpMarks, owners and cooling.
//
// # Vocabulary
//
//   - Record: what is remembered of one attachment, written before each act. Acts are undone in reverse.
//   - Batch: the networks of one container that an ADD attaches, all or none; most often one. Group: those of them that
//     go through their lists side by side, with one write, one transaction of the guard and one pass over the kernel
//     for all. Run: one network of it.
//   - Cut: the place in a list where something outside must act (a foreign plugin, a foreign IPAM). What is planned
//     before a cut is applied before it; the answer is a fact for what is planned behind it. What is between two cuts
//     is a segment.
//   - Fast and thorough: an agent's DEL takes away everything that others can see and leaves the dead links to a reaper
//     (Release); without a reaper, and where an ADD fails, the links are gone when the call returns (Remove).
//   - Mark: the owner's name in the ifalias of links and the comment of nft elements, by which GC and DEL find what no
//     record tells of.
//
// What virtual machines have made of attachments is in records of the same form, with acts that begin and end one by
// one. They are undone before the attachment is, by who makes them (Machines).
//
// A process that is killed between any two steps leaves a pending or releasing record whose acts cover all that was
// done; Recover, the next ADD or DEL of the same key, or GC undo it.
package attach
