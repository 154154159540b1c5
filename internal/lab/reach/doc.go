// SPDX-License-Identifier: Apache-2.0

// Package reach finds out who reaches whom by sending real packets. One process does it all: it listens inside each
// endpoint's network namespace and sends from inside each one, so that nothing has to run in the pods.
//
// # Vocabulary
//
//   - Endpoint: a pod or node: a name, a namespace and the addresses under which others know it.
//   - Pair: from one endpoint to another by one protocol. There is a pair for each protocol of each family in which
//     both have an address. It reaches when every address of that family answers.
//   - Expected: whether the pair should reach; network policies know that, all should unless told.
//
// A TCP or UDP answer carries the name of who answers, so an answer from the wrong pod is a failure too.
package reach
