// SPDX-License-Identifier: Apache-2.0

// Package blocks gives addresses that are unique in the whole cluster. A node claims blocks of a pool in the cluster's
// store and gives addresses from them out of its memory: an ADD asks nobody.
//
// What it knows of the plugin whereabouts, whose configurations it takes, is in package whereabouts below it. Whether
// what the store says of addresses is true is looked at by package audit, which reads objects and no engine.
//
// # Vocabulary
//
//   - Pool: regions of addresses, each cut into blocks of one size. What is cut stays cut: two nodes can never see
//     overlapping blocks.
//   - Block: an object of the store. That it exists is the claim of the node it names; Create decides between two
//     nodes.
//   - Claim (of a block): a number, new each time the block is taken into use. A late word about an earlier claim
//     cannot be taken for one about this.
//   - Ceded: an address of a block that its node gave away, recorded in the block's object. Whoever writes its name
//     there first has it: a block of one address. So a small pool is used up to its last address.
//   - Want: one address that an attachment is to have: the pool, and which of its addresses will do.
//   - Held: given to an attachment. Resting: released, and not given again for a while.
//
// # The parts
//
// Each owns what it knows, and knows those above it and none below. An Engine builds them.
//
//	memory         pools, blocks and who holds what: an ADD is served from it alone. Its lock is never held over a request
//	namesakes      what another machine claimed that runs as the same node
//	journalFile    what an engine that starts must know
//	chooser        which addresses of which pools an attachment is to have
//	registry       the store's objects of pools and blocks
//	requests       what the controller is asked for
//	addressClaims  promises of addresses: IPAMClaims, AddressClaims, and those of virtual machines
//	affinity       which blocks are this node's: claims them, takes them up again, gives them up
//	obtainer       an address for an attachment: from memory, else by the store or from another node
//	returner       gives back what is not needed, and what others ask for
//	follower       hears what changes, and does what no ADD waits for
//
// # Who remembers what
//
//	the store     which node has which block
//	the journal   blocks.json in the agent's state directory: which blocks this node may give from without asking, and those
//	              whose return has begun
//	the ledger    which attachment holds which address (attach writes it before it touches the kernel)
//
// # No address twice
//
// A block is in the journal only after the store took the claim, and "releasing" is in the journal before the store is
// asked to forget it. A releasing block gives nothing until its object is seen gone, or was written with a new claim,
// which makes any delayed request of the old one fail. A request whose outcome is unknown counts as what is worse. A
// block of a machine that does not answer stays its block; it is taken over only when its Node object is gone.
package blocks
