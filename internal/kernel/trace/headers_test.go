// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"testing"
)

// The kernel may assign a later packet the number of an earlier one: its steps have its own headers.
func TestHeadersOfReusedNumbers(t *testing.T) {
	first, second := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")
	steps := []Seen{
		{Packet: 7, Verdict: "continue"},
		{Packet: 7, From: first, Key: 1},
		{Packet: 7},
		{Packet: 8, From: second, Key: 3},
		{Packet: 7, From: second, Key: 2},
		{Packet: 7},
		{Packet: 8},
	}
	fillHeaders(steps)
	for i, want := range []uint64{0, 1, 1, 3, 2, 2, 3} {
		if steps[i].Key != want {
			t.Errorf("step %d has key %d, want %d", i, steps[i].Key, want)
		}
	}
	if steps[2].From != first || steps[5].From != second {
		t.Errorf("%v", steps)
	}
}
