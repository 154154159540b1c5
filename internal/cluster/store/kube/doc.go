// SPDX-License-Identifier: Apache-2.0

// Package kube is the store that is a Kubernetes API server. It follows what one node needs to know, gives it in the
// words of package store, and writes back what became of the node's pods. No other room knows client-go.
//
// # Vocabulary
//
//   - Shelf: the objects of one kind, as the server told them last. Facts are made from shelves, and a lookup that
//     finds its object on one asks nobody.
//   - Item: one object on its way from the server to a shelf. Only what weft reads is kept of it: a Node is 10 KB on
//     the wire, and a few hundred bytes here.
//   - Snapshot: the shelves as files of the state directory, so that an agent that starts while the server is away
//     knows what the one before it knew.
//
// # The picture
//
//	API server ──watch──→ items ──→ shelves ──→ facts
//	                                   │  └───→ Pod, Network: lookups of an ADD, without a request
//	                                   └──────→ snapshot ──→ shelves of the next agent
//	Annotate, Event, Objects ──────────────────→ API server
//
// # When the server is away
//
// The shelves stay as they are, and a watch that comes back goes on where it was; only when the server has forgotten
// that point is everything told again. A lookup of an unknown pod is one request with a short limit, and its error says
// to try again. Annotations wait, also over a restart of the agent; events wait in a queue that is bounded and not
// kept.
//
// Clients are client-go's untyped ones with JSON that is decoded here: the typed ones would cost an agent 30 MB. The
// token of a service account is read from its file again and again by client-go, and is in no snapshot, log or error.
//
// deploy/base/rbac.yaml lists the rules that an agent needs; the tests go by it.
package kube
