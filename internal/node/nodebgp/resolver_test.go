// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/kernel/lookup"
)

// TestResolverFails: a question to the kernel that fails is no answer: the next hop stays as it was, and its routes with it.
func TestResolverFails(t *testing.T) {
	broken, err := lookup.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	a, was := netip.MustParseAddr("192.0.2.1"), hop{netip.MustParseAddr("192.0.2.1"), "eth7"}
	r := newResolver()
	r.ns, r.last[a] = broken, was
	if got := r.resolve(t.Context(), map[netip.Addr]bool{a: true})[a]; got != was {
		t.Errorf("%+v, want %+v", got, was)
	}
}
