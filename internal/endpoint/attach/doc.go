// SPDX-License-Identifier: Apache-2.0

// Package attach implements the life cycle of attachments: ADD, CHECK, DEL, GC and repair. It records each step before
// it is done, so that a crash leaves nothing behind, and treats a configuration list as a whole.
//
//	ADD   validate → record (pending) → IPAM → plan → record the plan → apply → …again after each cut… → done
//	DEL   record (releasing) → undo in reverse, several in one pass over the kernel → delete the record
//	CHECK compare the plan with the kernel; ask IPAM and foreign plugins
//	GC    undo every attachment of the network that the runtime does not list as valid
//
// # Parts
//
// Attacher is the facade with the verbs. Each part names its dependencies, and does not know the parts that use it.
//
//	adder      ADD: a batch of runs, in groups; records, allocates addresses, plans, applies
//	deleter    DEL by the record; deriver, DEL without a record
//	collector  GC
//	checker    CHECK and STATUS
//	recoverer  undoes what a killed process has left
//	repairer   repairs the drift of finished attachments: index of objects, queue, drift policy
//	switcher   live migration: switches addresses between two attachments of a VM
//	handover   hands interfaces over to a container engine that moves them into its containers itself
//	rollback   undoes the acts of a record in reverse; used by DEL, GC, failed ADDs and recovery
//	releaseQueue  cleans up after a fast DEL: dead links, then shared objects without owners
//
// They share notifyingStore (the records, with listeners), lockSet, namespaces, catalog (properties of a configuration)
// and resolver (what depends on the node), delegator (foreign plugins), policyHook, podVMs, unmanaged (addresses
// outside of IPAM), dscpMarks, owners and cooling.
//
// # Vocabulary
//
//   - Record: the stored state of one attachment, written before each act. Acts are undone in reverse.
//   - Batch: the networks of one container that an ADD attaches, all or none; usually one. Group: those of them that
//     are attached in lockstep, with one write, one transaction of the policy engine and one pass over the kernel
//     for all. Run: one network of a batch.
//   - Cut: the place in a list where a foreign plugin or a foreign IPAM acts. What is planned before a cut is
//     applied before it; the plugin's result is input for what is planned after it. The part between two cuts is a
//     segment.
//   - Release and Remove: an agent's DEL removes everything that is visible outside and leaves the dead links to a reaper
//     (Release); without a reaper, and after a failed ADD, the links are gone when the call returns (Remove).
//   - Mark: the owner's name in the ifalias of links and the comment of nftables elements, by which GC and DEL find
//     what has no record.
//
// What virtual machines add to attachments is stored in records of the same form, whose acts begin and end one by one.
// VMRegistry undoes them before the attachment.
//
// A process that is killed between two steps leaves a pending or releasing record whose acts cover all that was done.
// Recover, the next ADD or DEL of the same key, or GC undoes it.
package attach
