// SPDX-License-Identifier: Apache-2.0

package builtin_test

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/builtin"
)

// What an allocator has a method for it reports that it can, and only that, and it says so of itself: what it may be
// made of has another way to choose.
func TestCapabilities(t *testing.T) {
	held := 0
	for typ, alloc := range builtin.Readers(os.ReadFile) {
		can := alloc.Capabilities()
		if _, has := alloc.(ipam.Reserver); has != (can.Reserve != nil) || has && any(can.Reserve) != any(alloc) {
			t.Errorf("%s: can hold: %t, says %T", typ, has, can.Reserve)
		}
		if _, has := alloc.(ipam.Transferrer); has != (can.Transfer != nil) || has && any(can.Transfer) != any(alloc) {
			t.Errorf("%s: can move: %t, says %T", typ, has, can.Transfer)
		}
		if _, has := alloc.(ipam.StickyAllocator); has != (can.Sticky != nil) || has && any(can.Sticky) != any(alloc) {
			t.Errorf("%s: can keep: %t, says %T", typ, has, can.Sticky)
		}
		if can.NeedsLink != (typ == "dhcp") {
			t.Errorf("%s needs the link: %t", typ, can.NeedsLink)
		}
		if can.Reserve != nil {
			held++
		}
	}
	if held < 2 {
		t.Errorf("%d allocators can hold", held)
	}
}
