// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// SpoofCheck returns weft's nft table with the elements of a bridge's port: packets from the port with another MAC
// address than the container's are dropped. Without port the table has no elements.
func SpoofCheck(k model.AttachmentKey, port string, mac state.MAC) state.Table {
	mark := elementMark(k)
	ports := state.Set{Name: "ports", Key: "ifname"}
	sources := state.Set{Name: "sources", Key: "ifname . ether_addr"}
	if port != "" {
		ports.Elements = []state.Element{{Key: []string{port}, Comment: mark}}
		sources.Elements = []state.Element{{Key: []string{port, mac.String()}, Comment: mark}}
	}
	return state.Table{
		Family: "bridge", Name: "weft_spoof", Shared: true, Sets: []state.Set{ports, sources},
		Chains: []state.Chain{{
			Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -300, Policy: "accept",
			Rules: []state.NftRule{
				{Text: "iifname . ether saddr @sources accept"},
				{Text: "iifname @ports drop"},
			},
		}},
	}
}
