// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestMany: inserting, updating, loosening and deleting work for thousands of entries as for a few: the kernel's
// answers, which quote refused requests, fit into the buffer.
func TestMany(t *testing.T) {
	ns := nettest.NS(t, "many")
	var k Conntrack
	defer func() { _ = k.Close() }()
	var all []state.ConntrackEntry
	for port := range uint16(3000) {
		from, to := netip.AddrPortFrom(netip.MustParseAddr("fd00::5"), 1024+port), netip.MustParseAddrPort("[fd00::9]:443")
		all = append(all, state.ConntrackEntry{
			Connection: state.Connection{
				Proto: 6, Src: from, Dst: to, ReplySrc: netip.MustParseAddrPort("[fd00::7]:8443"), ReplyDst: from,
			},
			Timeout: 300, Mark: 7, SeenReply: true, Assured: true, TCP: &state.ConntrackTCP{State: 3},
		})
	}
	for _, longer := range []bool{false, false, true} {
		if err := k.Insert(ns, all, longer); err != nil {
			t.Fatalf("longer %t: %v", longer, err)
		}
	}
	if err := k.SetTCPLiberal(ns, all); err != nil {
		t.Fatal(err)
	}
	cut, err := k.Flush(ns, func(state.Connection) bool { return true })
	if err != nil || len(cut) != len(all) {
		t.Errorf("%d are cut, %v", len(cut), err)
	}
	if left, err := k.List(ns, func(state.Connection) bool { return true }); err != nil || len(left) > 0 {
		t.Errorf("%d are left, %v", len(left), err)
	}
	// A missing entry is no error, however many there are.
	if err := k.SetTCPLiberal(ns, all); err != nil {
		t.Fatal(err)
	}
}
