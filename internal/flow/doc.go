// SPDX-License-Identifier: Apache-2.0

// Package flow has the values of weft observe: connections with the names of their ends and the verdict of policies, the
// lines in which agents stream them, and the filters that select them. It reads nothing.
//
// An agent streams Lines, one JSON document each, on its admin socket (node/observer.RoutePath). A reader needs no other
// source for names: the stream begins with the node's own addresses and those of its endpoints, and has each change of
// them before the flows that follow it.
package flow
