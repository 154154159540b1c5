// SPDX-License-Identifier: Apache-2.0

// Package vm says what the kernel of the emulated machine must be able to do; run.sh makes that machine and runs the
// kernel tests in it.
package vm
