// SPDX-License-Identifier: Apache-2.0

// Package matrix holds the tests of machines' networks as a whole: each binding, in pods that are attached as an agent
// attaches them, in each family, with one interface and with several; and what guests can do that mean harm. A relay
// stands in for the hypervisor.
package matrix
