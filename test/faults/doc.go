// SPDX-License-Identifier: Apache-2.0

// Package faults holds only tests: a plugin or an agent is killed, or fails, at any step of ADD and DEL. After recovery
// the host must be as before: links, addresses, routes, rules, nft, records and files.
package faults
