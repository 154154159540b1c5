// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks a small cluster from inside: a process in a pod, with more and more rights, and a guest try
// to speak in others' names, to reach what a policy denies, and to pass packets around the tunnels between nodes. Each
// row of the suite is one attack; none of its packets may arrive. Afterwards the guard is switched off, and the same
// packets must arrive: otherwise the row would prove nothing. `make test-hostile` runs it, docs/design/security.md has the
// table.
//
//	WEFT_HOSTILE=1       run; without it only the document is compared with the table
package hostile
