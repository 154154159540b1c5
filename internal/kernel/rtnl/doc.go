// SPDX-License-Identifier: Apache-2.0

// Package rtnl is a socket for the kernel's rtnetlink that sends many requests in one write and reads one
// acknowledgment for all of them. kernel/netlink has the encoding and the system calls, kernel/link the objects.
//
// A batch is not a transaction: the kernel continues after a request that it refused. So a batch must never contain a
// request that would change a foreign object when an earlier one is refused.
//
// rtnetlink works during the write: when it returns, all answers are in the socket's buffer (a dump's parts are
// generated while they are read). So no call ever waits for an answer. Refusals are sent without a request for them,
// and only the last request of a batch requests an acknowledgment: a batch of any length costs two system calls.
package rtnl
