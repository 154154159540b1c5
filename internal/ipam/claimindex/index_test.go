// SPDX-License-Identifier: Apache-2.0

package claimindex

import (
	"net/netip"
	"testing"
)

// TestReleasedBlocksAreKnown: a node that releases a block and claims it again does not list the claims for it.
func TestReleasedBlocksAreKnown(t *testing.T) {
	ix := &Index{}
	one, two := netip.MustParsePrefix("10.0.0.0/29"), netip.MustParsePrefix("10.0.0.8/29")
	set := func() {
		blinds := ix.begin()
		ix.set([]Address{{one.Addr(), "a"}, {two.Addr(), "b"}, {two.Addr().Next(), "c"}}, blinds)
	}
	count := func(cidr netip.Prefix) int {
		found, ok := ix.Find(cidr)
		if !ok {
			return -1
		}
		return len(found)
	}
	is := func(what string, cidr netip.Prefix, want int) {
		t.Helper()
		if got := count(cidr); got != want {
			t.Errorf("%s: %d claims in %s, want %d", what, got, cidr, want)
		}
	}
	is("not listed", one, -1)
	set()
	is("listed", one, 1)
	is("listed", two, 2)
	is("listed", netip.MustParsePrefix("10.0.0.16/29"), 0)
	ix.WillRelease("mine")
	ix.BlockDeleted(one, "mine")
	is("released here", one, 1)
	ix.BlockDeleted(two, "theirs")
	is("deleted by another", two, -1)
	is("the rest", one, 1)
	set()
	is("listed again", two, 2)
	blinds := ix.begin()
	ix.WatchEnded() // the watch ends during the list
	ix.set(nil, blinds)
	is("blind", one, -1)
}
