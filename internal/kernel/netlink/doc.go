// SPDX-License-Identifier: Apache-2.0

// Package netlink has what all netlink families share: messages and their attributes as bytes, batches of them, a
// socket that exchanges them with the kernel, and a listener for multicast groups. It does not know the objects of any
// family.
//
// # Encoding
//
// Encoder appends attributes to a buffer: strings, numbers of both byte orders, nested ones. Batch is an Encoder that
// inserts and numbers message headers, so that many requests are sent in one write. Attrs, Find and the small readers
// decode the kernel's bytes in place; nothing is copied, so data that is kept must be cloned.
//
// # The socket never waits
//
// rtnetlink, nf_tables and ctnetlink all work during the write: when it returns, every answer is in the socket's buffer
// (the parts of a dump are generated while they are read). So sockets are non-blocking, a missing answer is ErrNoAnswer
// immediately, and there are no timeouts. When an exchange ends early, or the kernel had more answers than the receive
// buffer holds (ENOBUFS), the rest is dropped before the next one: an answer is never matched with the wrong request.
//
// # Interrupted dumps
//
// The kernel marks a dump whose objects changed meanwhile (NLM_F_DUMP_INTR). Dump reports that, and Retry repeats reads
// that must be consistent: one dump, or several that belong together.
package netlink
