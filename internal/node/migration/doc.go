// SPDX-License-Identifier: Apache-2.0

// Package migration moves the addresses and connections of a VM to the target node of its live migration.
//
// # Vocabulary
//
//   - Awaited: a standby attachment on the target node, whose VM still runs on the source node.
//   - Switch: when the target receives packets of the VM, it takes over the VM's addresses: attach routes them to the
//     attachment, the block engine claims them, and with the blocks the routes of the other nodes follow.
//   - Retired: the attachment on the source node after the switch. Packets that still arrive for the VM are forwarded
//     by the mesh's route; if the VM's packets are received here again, because the migration has failed, it switches
//     back.
//   - Move: the AddressMove by which the target node gets the VM's connections from the source node.
//
// # Sequence
//
//	target                                     datastore                     source
//	ADD, in standby                         →  AddressMove            →
//	tracks the connections, too             ←  its connections        ←      the VM's conntrack entries, each second
//	receives packets of the VM, or the
//	instance's status names this node:
//	routes and claims the addresses         →  AddressBlock           →      when the mesh routes to the target: retires
//	tracks the new connections              ←  the last connections   ←
//	deletes the move
//
// The agent sends no gratuitous ARP or unsolicited neighbor advertisement at the switch: QEMU (by RARP) or the guest
// announces the addresses, and await takes that as the sign that the VM runs here. Other nodes follow the routes.
//
// The move decides nothing: if the source does not answer, or has no agent, only the connections are lost.
package migration
