// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/weft-net/weft/internal/state"
)

// Pods at ports of a bridge exchange frames that the node does not route, and that bypass the hooks in the pod if a raw
// socket or a guest sends them. Policies are enforced where frames enter the bridge by a port and where they leave by
// one, in a table of the family bridge, whose chains and sets are the same as in any other place. The family has no
// connection tracking: the bridge passes its packets to the IP hooks (br_netfilter), which have it, and a mark carries
// the connection's state from there.
const (
	// portPriority is after the IP hooks when a packet enters.
	portPriority = 1
	// established is the mark's bit of packets of connections that were allowed.
	established = 0x10000000
	// local is the mark's bit of packets that the node itself sends. A source address is no proof: every port could use
	// the node's.
	local = 0x20000000
	// lastPriority is after NAT and after other programs' marks in the node's output.
	lastPriority = 300
)

// portPreamble accepts frames that are not IP, established connections, DHCP, and what the node sends to its own pods.
// A DHCP client sends to all servers: unicast could be any other traffic.
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

// AuxiliaryTables returns the tables that a place's own depends on.
func (p EnforcementPoint) AuxiliaryTables() []state.Table {
	if !p.Ports {
		return nil
	}
	mark := func(bit uint32) string { return fmt.Sprintf("meta mark set meta mark | 0x%08x", bit) }
	return []state.Table{{Family: TableFamily, Name: TableName + "-seen", Chains: []state.Chain{
		{Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -149, Policy: "accept", Rules: rulesOf(
			fmt.Sprintf("meta mark set meta mark & 0x%08x", ^uint32(established)),
			"ct state established "+mark(established),
			// A packet that is routed to a port is tracked before the port denies it, so that there is a connection without a
			// reply so far: an error about a reply is not related then.
			"ct state related ct direction reply "+mark(established),
			"ct state related ct status expected,seen-reply "+mark(established))},
		// The gateway in a VLAN of a bridge is one end of a veth pair. Marks do not cross namespaces, so that no pod can set
		// it.
		{Name: "output", Type: "filter", Hook: "output", Priority: lastPriority, Policy: "accept", Rules: rulesOf(
			`meta oifkind "bridge" `+mark(local), `meta oifkind "veth" `+mark(local))},
	}}}
}
