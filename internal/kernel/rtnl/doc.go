// SPDX-License-Identifier: Apache-2.0

// Package rtnl is a socket to the kernel's rtnetlink that sends many requests in one write and reads one
// acknowledgment for all of them. Bytes and system calls are kernel/netlink's, the nouns are kernel/link's.
//
// A batch is not a transaction: the kernel goes on after a request that it refused. So a batch must never hold a
// request that would hit something foreign when an earlier one is refused.
//
// rtnetlink works while it is written to: when the write returns, all answers are in the socket's buffer (a dump's
// parts are made while they are read). So no call ever waits for an answer. Refusals come without being asked for, and
// only the last request of a batch asks for an acknowledgment: a batch of any length costs two system calls.
package rtnl
