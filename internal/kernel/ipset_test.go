// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestIPSets: sets are found by prefix and deleted; a missing one, and a kernel without ipset, are no error.
func TestIPSets(t *testing.T) {
	ns := nettest.NS(t, "n")
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	want := []string{"weft-a", "weft-b"}
	for _, name := range append([]string{"other"}, want...) {
		if _, err := nettest.Try(ns, "ipset", "create", name, "hash:net"); err != nil {
			want = nil // no program, or none for this kernel
		}
	}
	got, err := c.IPSets("weft-")
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, name := range append(want, "weft-missing") {
		if err := c.DeleteIPSet(name); err != nil && want != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := c.IPSets(""); err != nil || want != nil && !slices.Equal(got, []string{"other"}) {
		t.Errorf("left: %v, %v; want the other one", got, err)
	}
}
