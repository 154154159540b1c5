// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/weft-net/weft/internal/state"
)

// Where a machine's guest is on its pod's wire, neither the pod nor, on a bridge, the node's routing sees its packets. They are
// judged where they come into the bridge by its port and where they leave by it, in a table of the family bridge, whose chains
// and sets are those of any other place. The family has no connections of its own: the bridge shows its packets to the
// hooks of IP (br_netfilter), which track them, and a mark carries what is known there of a connection.
const (
	portFamily = "bridge"
	// portPriority is behind the hooks of IP when a packet comes.
	portPriority = 1
	// established is the mark's bit of packets of connections that were allowed.
	established = 0x10000000
)

// Family is that of the tables of the place.
func (p Place) Family() string {
	switch {
	case p.Ports:
		return portFamily
	case p.Tap != "":
		return tapFamily
	}
	return TableFamily
}

func portHooks() []hook {
	return []hook{{"egress", "prerouting", egress, "iifname"}, {"ingress", "postrouting", ingress, "oifname"}}
}

// portPreamble accepts what of a wire is not IP's, and the lease of an address beside what is established.
func portPreamble(dir direction) []string {
	lease := "udp sport 68 udp dport 67 accept"
	if dir == ingress {
		lease = "udp sport 67 udp dport 68 accept"
	}
	return []string{fmt.Sprintf("meta mark & 0x%08x == 0x%08x accept", established, established), "meta protocol arp accept", "meta protocol rarp accept", lease}
}

// Beside are the tables that a place's own cannot do without.
func (p Place) Beside() []state.Table {
	if !p.Ports {
		return nil
	}
	return []state.Table{{Family: TableFamily, Name: TableName + "-seen", Chains: []state.Chain{{
		Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -149, Policy: "accept",
		Rules: []state.NftRule{
			{Text: fmt.Sprintf("meta mark set meta mark & 0x%08x", ^uint32(established))},
			{Text: fmt.Sprintf("ct state established,related meta mark set meta mark | 0x%08x", established)},
		},
	}}}}
}
