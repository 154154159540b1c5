// SPDX-License-Identifier: Apache-2.0

// Package observe answers a planner's queries about a pair of namespaces: links and their addresses, routes, neighbors
// and gateways, hardware, settings, packet filters and files. It changes nothing, but for asking a gateway's neighbor
// entry anew.
package observe
