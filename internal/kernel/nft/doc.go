// SPDX-License-Identifier: Apache-2.0

// Package nft is the driver of nf_tables: it makes the kernel's tables equal to state.Table values, by transactions
// guarded by the kernel's generation, and reads them by dumps. Package lang defines the rules' language: a rule is
// text, compiled to expressions, and decompiled to the same text.
//
// # Vocabulary
//
//   - A whole table belongs to weft: Apply makes the kernel's table equal to the value, Remove deletes it.
//   - A shared table (state.Table.Shared) has many owners: Apply ensures its sets, chains and rules and adds the named
//     elements; Remove deletes those elements and nothing else; RemoveShared deletes the table when none of its sets has
//     elements.
//   - The elements of exclusive sets of a shared table (state.Set.Exclusive) have one owner each. The kernel refuses an
//     existing key in the transaction itself; a key that is the end of another one is searched in the other sets of the
//     group, unless they are known to be empty.
//   - The elements of owned sets of a shared table (state.Set.Owned) pass from one owner to the next: Apply replaces the
//     owner's comment, and a later removal by the former owner has no effect.
//   - A dynamic set (state.Set.DynamicSize) has elements that rules add, until they expire: plans do not name them, and
//     they are no difference.
//   - A change (state.TableChange) is written to a whole table without reading it: the caller knows the table's content.
//     If it does not apply, the kernel refuses all of it, and Apply reconciles.
//   - The generation is the kernel's counter of committed transactions in a namespace. While it is unchanged since a table
//     was read, the table is unchanged, too, so that adding a pod is one transaction without reading.
package nft
