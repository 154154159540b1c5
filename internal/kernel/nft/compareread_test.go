// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestElementsAreComparedSetBySet: of the elements that a table has, those of one set are in memory at a time, and an Apply
// repairs each set.
func TestElementsAreComparedSetBySet(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	want := state.Table{Family: "inet", Name: "weft-test"}
	for i := range 3 {
		s := state.Set{Name: fmt.Sprint("s", i), Key: "ipv4_addr", Interval: i == 1}
		s.Elements = elements("10.0.0.1", "10.0.0.3", "10.0.0.5")
		want.Sets = append(want.Sets, s)
	}
	apply(t, c, want)
	for i := range 3 {
		nettest.Run(t, ns, "nft", "delete element inet weft-test s"+fmt.Sprint(i)+" { 10.0.0.3 }")
		nettest.Run(t, ns, "nft", "add element inet weft-test s"+fmt.Sprint(i)+" { 10.0.0.7, 10.0.0.9 }")
	}
	ws, err := compile([]state.Table{want})
	if err != nil {
		t.Fatal(err)
	}
	d := newDelta()
	have, err := c.readCompared(ws[0], d)
	if err != nil {
		t.Fatal(err)
	}
	d.compareTables(ws[0], have)
	for _, s := range have.Sets {
		if len(s.Elements) > 0 || len(d.makeElems[s.Name]) != 1 || len(d.dropElems[s.Name]) != 2 {
			t.Errorf("set %s: %d elements are kept, %d to make, %d to delete; want 0, 1, 2", s.Name, len(s.Elements),
				len(d.makeElems[s.Name]), len(d.dropElems[s.Name]))
		}
	}
	apply(t, c, want)
	if differences, err := c.Diff(bounded(t), []state.Table{want}); err != nil || len(differences) > 0 {
		t.Error(differences, err)
	}
}
