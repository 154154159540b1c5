// SPDX-License-Identifier: Apache-2.0

// Package matrix has the tests of VM networks as a whole: each binding, in pods that are attached as an agent attaches
// them, in each IP family, with one interface and with several; and hostile guests. A relay stands in for the
// hypervisor.
package matrix
