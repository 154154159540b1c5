// SPDX-License-Identifier: Apache-2.0

// Package link speaks rtnetlink's nouns: each file turns one noun of state into requests and reads it back. It decides
// nothing; internal/kernel compares and orders.
package link
