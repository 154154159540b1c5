// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestSetsOfSharedTables: running pods have elements in the sets as they were when the pods were attached, and their
// records contain them. A table whose sets change needs a new name, and the old name must stay in SharedTables.
func TestSetsOfSharedTables(t *testing.T) {
	const mac3, mac = "ifname . ether_addr . ", "ifname . ether_addr"
	tables := append((source{}).tables(model.AttachmentKey{}),
		portGuard(model.AttachmentKey{}, "", state.MAC{}, addressed{}, false))
	tables = append(tables, shimTables(model.AttachmentKey{}, "", state.MAC{}, addressed{})...)
	want := map[string]string{
		"bridge weft_guard2": "[ports ifname false free ifname false macs " + mac + " false own4 " + mac3 +
			"ipv4_addr false own6 " + mac3 + "ipv6_addr false]",
		"inet weft_source": "[links ifname false own4 " + mac3 + "ipv4_addr false own6 " + mac3 +
			"ipv6_addr false unaddressed " + mac + " false more4 " +
			mac3 + "ipv4_addr true more6 " + mac3 + "ipv6_addr true]",
		"inet weft_shim":  "[macs " + mac + " false pods4 " + mac3 + "ipv4_addr false pods6 " + mac3 + "ipv6_addr false]",
		"arp weft_shim":   "[pods4 " + mac3 + "ipv4_addr false]",
		"arp weft_source": "[links ifname false own4 " + mac3 + "ipv4_addr false more4 " + mac3 + "ipv4_addr true]",
	}
	for _, table := range tables {
		var sets []any
		for _, s := range table.Sets {
			sets = append(sets, s.Name, s.Key, s.Interval)
		}
		name := table.Family + " " + table.Name
		if got := fmt.Sprint(sets); got != want[name] {
			t.Errorf("the sets of table %s have changed: choose another name for it\ngot  %s\nwant %s", name, got, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("there is no table %s", name)
	}
}
