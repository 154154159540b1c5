// SPDX-License-Identifier: Apache-2.0

// Package netlink is what every netlink family has in common: messages and their attributes as bytes, batches of them,
// a socket that exchanges them with the kernel, and a listener for multicast groups. It knows no family's nouns.
//
// # Encoding
//
// Encoder appends attributes to a buffer: strings, numbers of both byte orders, nested ones. Batch is an Encoder that
// puts message headers in between and numbers them, so that many requests travel in one write. Attrs, Find and the
// small readers take the kernel's bytes apart in place; nothing is copied, so what is kept must be cloned.
//
// # The socket never waits
//
// rtnetlink, nf_tables and ctnetlink all work while they are written to: when the write returns, every answer is in the
// socket's buffer (the parts of a dump are made while they are read). So sockets are non-blocking, a missing answer is
// ErrNoAnswer at once, and there are no timeouts. When an exchange ends early, or the kernel had more answers than the
// receive buffer holds (ENOBUFS), what is left is dropped before the next one: an answer never meets the wrong request.
//
// # Interrupted dumps
//
// The kernel marks a dump of something that changed meanwhile (NLM_F_DUMP_INTR). Dump reports that, and Retry reads
// again what must be consistent: one dump, or several that belong together.
package netlink
