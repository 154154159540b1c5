// SPDX-License-Identifier: Apache-2.0

// Package blocks allocates addresses that are unique in the whole cluster. A node claims blocks of a pool in the datastore
// and allocates from them out of its local state: most ADDs need no request to the datastore.
//
// # Packages
//
// What needs no state of blocks is in packages of its own, below ipam:
//
//	addressclaims  IPAMClaims, AddressClaims, and those of virtual machines, for the attachments of this node
//	addrspan       ranges of addresses
//	blockjournal   the file from which an engine continues after a restart
//	blockreport    what a node reports about its blocks and addresses
//	claimindex     which addresses of a new block belong to claims
//	duplicatenode  another host that runs as the same node
//	poolcatalog    which pools of the cluster's network may serve an attachment
//	poolconf       the configurations that request addresses of pools
//	poolrequest    requests to a separate controller, and what this node may do without its grant
//	whereabouts    the configurations and objects of the plugin whereabouts
//
// Package audit compares the objects in the datastore with pods and nodes, without an engine.
//
// The parts below stay together, because each of them changes the same pools and blocks under one mutex: in a package of
// its own, nodeState would have to export nearly all fields of these, and that mutex.
//
// # Vocabulary
//
//   - Pool: regions of addresses, each divided into blocks of one size. The division never changes: two nodes never see
//     overlapping blocks.
//   - Block: an object in the datastore. Its existence is the claim of the node that it names; Create decides between two
//     nodes.
//   - Claim (of a block): a random number, new each time a node starts to use the block. It makes delayed requests about
//     an earlier claim fail.
//   - Lent, borrowed: an address of a block that its node lets another node allocate, recorded in the block's object. The
//     first node that writes its name there borrows it, as if it were a block of one address. So a small pool is used up
//     to its last address.
//   - Want: a request for one address: the pool, and which of its addresses are acceptable (poolconf.Want).
//   - Held: allocated to an attachment. Cooling: released, and not allocated again before its cooldown is over.
//
// # Parts
//
// Each owns its state, and depends on those above it only. An Engine builds them.
//
//	nodeState       pools, blocks and allocations: an ADD is served from it. Its mutex is never locked during a request
//	journalFile     keeps the state in the journal
//	clusterPools    loads the pools of the cluster's network, and expects the configurations that request them
//	registry        the objects of pools and blocks in the datastore
//	affinity        this node's blocks: claims, renews and releases them
//	acquirer        an address for an attachment: from this node's blocks, else from the datastore or another node
//	releaser        releases what is not needed, and lends what other nodes request
//	reconciler      watches the datastore, and does the work that no ADD waits for
//
// # Where state is
//
//	datastore  which node has which block
//	journal    blocks.json in the agent's state directory: the blocks that this node may allocate from, and those whose
//	           release has begun
//	ledger     which attachment has which address (attach writes it before it changes the kernel)
//
// # Uniqueness
//
// A block is in the journal only after the datastore has accepted the claim, and "releasing" is in the journal before the
// object is deleted. Nothing is allocated from a releasing block until its object is gone, or was written with a new
// claim, which makes delayed requests of the old one fail. A request with an unknown outcome counts as the worse case. An
// unreachable node keeps its blocks; they are taken over only when its Node object is gone.
package blocks
