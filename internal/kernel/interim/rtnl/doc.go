// SPDX-License-Identifier: Apache-2.0

// Package rtnl is a socket to the kernel's rtnetlink that sends many requests in one message and reads one
// acknowledgement for all of them. Encoding an attribute is all it knows of what is said; the nouns are kernel/link's.
//
// A batch is not a transaction: the kernel goes on after a request that failed. Only the last request asks for an
// acknowledgement, since refusals are answered without being asked for, so a batch of any length costs two system calls.
package rtnl
