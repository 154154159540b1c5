// SPDX-License-Identifier: Apache-2.0

// Package vm tests the kernel features that the test VM must have; run.sh builds it and runs the kernel
// tests in it.
package vm
