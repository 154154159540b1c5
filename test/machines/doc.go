// SPDX-License-Identifier: Apache-2.0

// Package machines tests weft's commands that run virtual machines, from the outside: what they say, and what they
// leave.
package machines
