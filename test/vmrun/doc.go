// SPDX-License-Identifier: Apache-2.0

// Package vmrun tests weft's commands that run VMs, by executing the programs: their output, and that they leave
// nothing.
package vmrun
