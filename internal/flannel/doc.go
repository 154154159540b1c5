// SPDX-License-Identifier: Apache-2.0

// Package flannel reads and writes flannel's formats: its configuration (net-conf.json), what its nodes publish (node
// annotations, leases in etcd), the subnet file and the rules. It has pure functions only.
//
// # Vocabulary
//
//   - Network: the prefix that all subnets are cut from, one a family.
//   - Subnet: the prefix of one node's pods; its podCIDR.
//   - Prefix: what flannel's annotations begin with. It can be configured.
package flannel
