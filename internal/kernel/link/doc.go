// SPDX-License-Identifier: Apache-2.0

// Package link encodes rtnetlink's objects: each file turns one kind of object of package state into requests and
// decodes it. It decides nothing; internal/kernel compares and orders.
package link
