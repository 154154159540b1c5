// SPDX-License-Identifier: Apache-2.0

// Package explain says why packets between two ends do not arrive, without sending one.
//
// Explain walks the path of a packet, there and back, hop by hop: the pod, its node, the tunnel, the other node, the
// other pod, the socket. It decides from facts about the nodes and from answers of their kernels. What it has no answer
// to is unknown, and is named as a Question; the caller asks the nodes and calls Explain again, until there is no
// question left: a later question depends on earlier answers, such as the route after the destination was translated.
// The kernel is asked how it would forward the packet, rather than its routes read and its lookup done again here.
//
// The package is pure: questions with their answers can be kept in a support bundle and explained elsewhere. A hop is
// never ok while an answer about it is missing.
package explain
