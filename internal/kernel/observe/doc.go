// SPDX-License-Identifier: Apache-2.0

// Package observe answers planners' queries about a pair of namespaces: links and their addresses, routes, neighbors
// and gateways, hardware, settings, packet filters and files. It changes nothing, except that it makes the kernel
// resolve gateways.
package observe
