// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"testing"
)

// An address belongs to its block's node unless it is lent.
func TestHolder(t *testing.T) {
	a := func(s string) netip.Addr { return netip.MustParseAddr("10.1.0." + s) }
	b := AddressBlock{
		CIDR: netip.MustParsePrefix("10.1.0.0/28"), Node: "one",
		Lent: map[netip.Addr]string{a("2"): "two/7", a("3"): "", a("4"): "one/9"},
	}
	for last, want := range map[string]string{"1": "one", "2": "two", "3": "", "4": "one"} {
		if got := b.Holder(a(last)); got != want {
			t.Errorf(".%s is held by %q, want %q", last, got, want)
		}
	}
}
