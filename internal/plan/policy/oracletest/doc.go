// SPDX-License-Identifier: Apache-2.0

// Package oracletest has only tests: for random clusters and policies, plans, their changes and real packets are compared
// with plan/policy/naive, the reference evaluator.
package oracletest
