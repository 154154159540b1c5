// SPDX-License-Identifier: Apache-2.0

// Package move has virtual machines go from node to node with their addresses.
//
// # Vocabulary
//
//   - Awaited: an attachment that stands by for a machine which still runs elsewhere.
//   - Switch: from when the machine is heard here, its addresses are this node's: attach leads to them, the block
//     engine takes them, and with the blocks the other nodes' routes follow.
//   - Retired: the attachment that the machine has left. What still comes for it is passed on by the mesh's route;
//     should the machine be heard there again, because the migration has failed, it switches back.
//   - Move: the object by which the node that awaits a machine gets its connections from the node that has it.
//
// # Who does what, when
//
//	target                                     the cluster's store           source
//	ADD, in standby                         →  AddressMove            →
//	tracks the connections, too             ←  its connections        ←      what it tracks of the machine, each second
//	hears the machine, or sees in its
//	instance's status that it is here:
//	leads to it, takes the addresses       →  AddressBlock           →      when the mesh leads to the target: retires
//	tracks what was new                     ←  the last connections   ←
//	deletes the move
//
// Nothing is decided by the move: a source that does not answer, or has no agent, costs the connections and nothing
// else.
package move
