// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/weft-net/weft/internal/state"
)

// Pods at ports of a bridge exchange frames that the node does not route, and that a raw socket or a guest in the pod
// sends without passing a hook in the pod. Policies are enforced where frames enter the bridge by a port and where they
// leave by one, in a table of the family bridge, whose chains and sets are those of any other place. The family tracks
// no connections: the bridge shows its packets to the hooks of IP (br_netfilter), which do, and a mark carries what is
// known there of a connection.
const (
	// portPriority is behind the hooks of IP when a packet comes.
	portPriority = 1
	// established is the mark's bit of packets of connections that were allowed.
	established = 0x10000000
	// local is the mark's bit of packets that the node itself sends. An address proves nothing: every port could claim the
	// node's.
	local = 0x20000000
	// lastPriority is behind all that translates addresses and sets marks where the node sends.
	lastPriority = 300
)

// portPreamble accepts what of a wire is not IP's, and the lease of an address beside what is established; and what the
// node sends to its own pods. A client of DHCP asks all: what it would ask one server could be anything for anybody.
func portPreamble(dir direction) []string {
	out := []string{bitSet(established)}
	lease := "ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept"
	if dir == ingress {
		out = append(out, bitSet(local))
		lease = "udp sport 67 udp dport 68 accept"
	}
	return append(out, "meta protocol arp accept", "meta protocol rarp accept", lease)
}

func bitSet(bit uint32) string { return fmt.Sprintf("meta mark & 0x%08x == 0x%08x accept", bit, bit) }

// Beside are the tables that a place's own cannot do without.
func (p Place) Beside() []state.Table {
	if !p.Ports {
		return nil
	}
	mark := func(bit uint32) string { return fmt.Sprintf("meta mark set meta mark | 0x%08x", bit) }
	return []state.Table{{Family: TableFamily, Name: TableName + "-seen", Chains: []state.Chain{
		{Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -149, Policy: "accept", Rules: rulesOf(
			fmt.Sprintf("meta mark set meta mark & 0x%08x", ^uint32(established)),
			"ct state established,related "+mark(established))},
		// The gateway in a VLAN of a bridge is one end of a pair. No mark crosses a namespace, so that no pod can set it.
		{Name: "output", Type: "filter", Hook: "output", Priority: lastPriority, Policy: "accept", Rules: rulesOf(
			`meta oifkind "bridge" `+mark(local), `meta oifkind "veth" `+mark(local))},
	}}}
}
