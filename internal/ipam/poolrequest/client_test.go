// SPDX-License-Identifier: Apache-2.0

package poolrequest

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestMayTake: with a separate controller, a node takes an address that another node has only with the controller's
// grant for that claim, or when it is lent.
func TestMayTake(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.1")
	entry := func(text string) map[netip.Addr]string { return map[netip.Addr]string{a: text} }
	for _, c := range []struct {
		name  string
		block model.AddressBlock
		want  bool
	}{
		{"another node's", model.AddressBlock{Node: "b"}, false},
		{"granted to the claim", model.AddressBlock{Node: "b", Granted: entry("a for shop/db")}, true},
		{"granted to another claim", model.AddressBlock{Node: "b", Granted: entry("a for shop/web")}, false},
		{"granted to another node", model.AddressBlock{Node: "b", Granted: entry("c for shop/db")}, false},
		{"lent to any node", model.AddressBlock{Node: "b", Lent: entry("")}, true},
		{"lent to this node", model.AddressBlock{Node: "b", Lent: entry("a/1")}, true},
		{"lent to another node", model.AddressBlock{Node: "b", Lent: entry("c/1")}, false},
		{"this node's", model.AddressBlock{Node: "a"}, true},
		{"this node's, offered", model.AddressBlock{Node: "a", Lent: entry("c/")}, true},
		{"this node's, lent to another", model.AddressBlock{Node: "a", Lent: entry("c/1")}, false},
	} {
		if got := New(Config{Node: "a", Separate: true}).MayTake(c.block, a, "shop/db"); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
		if !New(Config{Node: "a"}).MayTake(c.block, a, "shop/db") {
			t.Errorf("%s: a grant is needed without a separate controller", c.name)
		}
	}
}
