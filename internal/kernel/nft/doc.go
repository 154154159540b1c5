// SPDX-License-Identifier: Apache-2.0

// Package nft is the driver of nf_tables: it makes the kernel's tables equal to state.Table values, by transactions
// that the kernel's generation guards, and reads them by dumps. What rules mean is package lang's: a rule is text,
// compiled to expressions, and read back as the same text.
//
// # Vocabulary
//
//   - A whole table is weft's alone: Apply makes the kernel's table exactly the value, Remove deletes it.
//   - A shared table (state.Table.Shared) has many owners: Apply makes sure of its sets, chains and rules and adds the
//     elements that are named; Remove takes away those elements and nothing else; RemoveShared takes the table away
//     when no element is left in any of its sets.
//   - Exclusive sets of a shared table (state.Set.Exclusive) are those whose elements one owner alone can have. The
//     same key is refused by the kernel in the transaction itself; a key that is the end of another's is looked for in
//     the other sets of the group, unless they are known to be empty.
//   - Owned sets of a shared table (state.Set.Owned) are those whose elements pass from one owner to the next: Apply
//     puts the owner's comment in the place of another's, and what that one takes away later is not theirs.
//   - A set that learns (state.Set.Learns) holds what rules put into it, until that fades: no plan names its elements,
//     and they are no difference.
//   - A change (state.TableChange) is what to write to a whole table without reading it: who sends it knows what the
//     kernel holds. Where it does not fit, the kernel refuses all of it, and Apply puts things right.
//   - The generation is the kernel's counter of committed transactions in a namespace. When it has not moved since a
//     table was last looked at, nobody has touched the table, so that adding a pod is one transaction and no reading.
package nft
