// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestMany: a machine with thousands of connections is tracked, known already, loosened and cut as one with a few: the
// kernel's answers, which repeat what they refuse, find room.
func TestMany(t *testing.T) {
	ns := nettest.NS(t, "many")
	var k Tracker
	defer func() { _ = k.Close() }()
	var all []state.Tracked
	for port := range uint16(3000) {
		from, to := netip.AddrPortFrom(netip.MustParseAddr("fd00::5"), 1024+port), netip.MustParseAddrPort("[fd00::9]:443")
		all = append(all, state.Tracked{
			Connection: state.Connection{
				Proto: 6, From: from, To: to, Answers: netip.MustParseAddrPort("[fd00::7]:8443"), Back: from,
			},
			Timeout: 300, Mark: 7, Answered: true, Assured: true, TCP: &state.TrackedTCP{State: 3},
		})
	}
	for _, longer := range []bool{false, false, true} {
		if err := k.Track(ns, all, longer); err != nil {
			t.Fatalf("longer %t: %v", longer, err)
		}
	}
	if err := k.Loosen(ns, all); err != nil {
		t.Fatal(err)
	}
	cut, err := k.Cut(ns, func(state.Connection) bool { return true })
	if err != nil || len(cut) != len(all) {
		t.Errorf("%d are cut, %v", len(cut), err)
	}
	if left, err := k.List(ns, func(state.Connection) bool { return true }); err != nil || len(left) > 0 {
		t.Errorf("%d are left, %v", len(left), err)
	}
	// What has gone meanwhile is no error, however much it is.
	if err := k.Loosen(ns, all); err != nil {
		t.Fatal(err)
	}
}
