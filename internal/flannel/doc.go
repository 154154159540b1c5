// SPDX-License-Identifier: Apache-2.0

// Package flannel knows flannel's formats: its configuration (net-conf.json), what its nodes tell each other (node
// annotations, leases in etcd), the subnet file and the rules. All of it is pure: texts become values, values become
// texts.
//
// # Vocabulary
//
//   - Network: the prefix that all subnets are cut from, one a family.
//   - Subnet: the prefix of one node's pods; its podCIDR.
//   - Prefix: what flannel's annotations begin with. A cluster may have chosen another than the usual one.
package flannel
