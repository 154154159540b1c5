// SPDX-License-Identifier: Apache-2.0

package builtin_test

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/builtin"
)

// What an allocator has a method for it says that it can, and only that, and it says so of itself: what it may be made
// of has another way to choose.
func TestCapabilities(t *testing.T) {
	held := 0
	for typ, alloc := range builtin.Readers(os.ReadFile) {
		can := alloc.Capabilities()
		if _, has := alloc.(ipam.Holder); has != (can.Hold != nil) || has && any(can.Hold) != any(alloc) {
			t.Errorf("%s: can hold: %t, says %T", typ, has, can.Hold)
		}
		if _, has := alloc.(ipam.Mover); has != (can.Move != nil) || has && any(can.Move) != any(alloc) {
			t.Errorf("%s: can move: %t, says %T", typ, has, can.Move)
		}
		if _, has := alloc.(ipam.Keeper); has != (can.Keep != nil) || has && any(can.Keep) != any(alloc) {
			t.Errorf("%s: can keep: %t, says %T", typ, has, can.Keep)
		}
		if can.NeedsLink != (typ == "dhcp") {
			t.Errorf("%s needs the link: %t", typ, can.NeedsLink)
		}
		if can.Hold != nil {
			held++
		}
	}
	if held < 2 {
		t.Errorf("%d allocators can hold", held)
	}
}
