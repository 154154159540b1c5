// SPDX-License-Identifier: Apache-2.0

// Package truth holds nothing but tests: random clusters and policies, for which plans, their changes and real packets
// are compared with what plan/policy/naive reads in the specification.
package truth
