// SPDX-License-Identifier: Apache-2.0

// Package kube is the store in a Kubernetes API server. It watches the objects that one node needs, converts them to
// objects of package store, and writes annotations and events of the node's pods. No other package imports client-go.
//
// # Vocabulary
//
//   - Cache: the last known objects of one kind. Facts are made from caches, and a lookup that
//     finds its object in one makes no request.
//   - Item: one object on its way from the server to a cache. Only what weft reads is kept of it: a Node is 10 KB on
//     the wire, and a few hundred bytes here.
//   - Snapshot: the caches as files of the state directory, so that an agent that starts while the server is unavailable
//     has the objects of the one before it.
//
// # Overview
//
//	API server ──watch──→ items ──→ caches ──→ facts
//	                                   │  └───→ Pod, Network: lookups of an ADD, without a request
//	                                   └──────→ snapshot ──→ shelves of the next agent
//	Annotate, Event, Objects ──────────────────→ API server
//
// # When the server is unavailable
//
// The caches are kept, and a watch is resumed at its resource version, or relisted if that is too old. A lookup of an
// unknown pod is one request with a short timeout, and its error is retryable. Annotations are queued, also across
// restarts of the agent; events are queued in memory, up to a limit.
//
// Clients are client-go's untyped ones, and JSON is decoded here: the typed ones would cost an agent 30 MB. client-go
// re-reads the service account's token from its file; it is in no snapshot, log or error.
//
// deploy/base/rbac.yaml has the rules that an agent needs; the tests use it.
package kube
