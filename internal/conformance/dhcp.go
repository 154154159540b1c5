// SPDX-License-Identifier: Apache-2.0

package conformance

// dhcpSubject is the dhcp plugin.
func dhcpSubject() *subject { return &subject{typ: "dhcp", role: giver} }
