// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/weft-net/weft/internal/state"

// SharedTables returns the nft tables in which attachments have elements. Tables without elements are removed.
func SharedTables() []state.Table {
	return []state.Table{
		{Family: "inet", Name: "weft", Shared: true},
		{Family: "inet", Name: "weft_hostports", Shared: true},
		{Family: "inet", Name: "weft_firewall", Shared: true},
		{Family: "bridge", Name: "weft_firewall", Shared: true},
		{Family: "bridge", Name: "weft_spoof", Shared: true},
		{Family: "bridge", Name: guardTable, Shared: true},
		{Family: "bridge", Name: earlierGuardTable, Shared: true},
		{Family: "inet", Name: SourceTable, Shared: true},
		{Family: "arp", Name: SourceTable, Shared: true},
		{Family: "inet", Name: FloatingTable, Shared: true},
		{Family: "inet", Name: QoSTable, Shared: true},
		{Family: "inet", Name: shimTable, Shared: true},
		{Family: "arp", Name: shimTable, Shared: true},
	}
}
