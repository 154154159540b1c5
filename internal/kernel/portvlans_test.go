// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// vlanRanges generates ranges, at most one of them the PVID.
func vlanRanges(t *rapid.T, label string) []state.VLANRange {
	var table vlanTable
	for range rapid.IntRange(0, 5).Draw(t, label) {
		first := rapid.IntRange(1, link.LastVLAN).Draw(t, "first")
		last := min(link.LastVLAN, first+rapid.IntRange(0, 40).Draw(t, "more"))
		untagged := rapid.Bool().Draw(t, "untagged")
		for id := first; id <= last; id++ {
			table[id].has, table[id].untagged = true, untagged
		}
	}
	if pvid := rapid.IntRange(0, link.LastVLAN).Draw(t, "pvid"); pvid > 0 {
		table[pvid].has, table[pvid].pvid = true, true
	}
	return table.ranges(func(id int) bool { return table[id].has })
}

// kernelVLANs changes a port as the kernel does: a VLAN that becomes the PVID takes that from another one, and one that
// is added again without the flag loses it.
func kernelVLANs(have *vlanTable, gone, add []state.VLANRange) {
	for _, r := range gone {
		for id := r.First; id <= r.Last; id++ {
			have[id].has, have[id].pvid, have[id].untagged = false, false, false
		}
	}
	for _, r := range add {
		for id := r.First; id <= r.Last; id++ {
			if r.PVID {
				for other := range have {
					have[other].pvid = false
				}
			}
			have[id].has, have[id].pvid, have[id].untagged = true, r.PVID, r.Untagged
		}
	}
}

// TestVLANChange changes any VLANs to any others: the port then has the wanted ones, and a second change is empty.
func TestVLANChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := vlanRanges(t, "from"), vlanRanges(t, "to")
		others, fresh := rapid.Bool().Draw(t, "others"), rapid.Bool().Draw(t, "fresh")
		port := state.Link{Name: "p", VLANs: &state.PortVLANs{Ranges: to, Others: others}}
		v := &portVLANs{links: newLinks(), found: map[string][]state.VLANRange{"p": from}}
		v.links.made["p"] = fresh
		have, want := tableOf(from), tableOf(to)
		gone, add := v.change(port, link.Found{})
		kernelVLANs(have, gone, add)
		for id := range have {
			if want[id].has && have[id] != want[id] || have[id].has && !want[id].has && !others {
				t.Fatalf("VLAN %d: %+v, want %+v", id, have[id], want[id])
			}
		}
		v.links.made["p"], v.found["p"] = false, have.ranges(func(id int) bool { return have[id].has })
		if gone, add = v.change(port, link.Found{}); len(gone)+len(add) > 0 {
			t.Fatalf("a second pass takes %v and puts %v", gone, add)
		}
	})
}

// FuzzDecodeVLANs: in any message from the kernel, no VLAN is out of range.
func FuzzDecodeVLANs(f *testing.F) {
	f.Add([]byte{7, 0, 0, 0, 5, 0, 0, 0, 20, 0, 1, 0, 8, 0, 1, 0, 6, 0, 100, 0, 6, 0, 2, 0, 110, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, ranges := link.DecodeVLANs(b)
		for _, r := range ranges {
			if r.First == 0 || r.Last < r.First || r.Last > link.LastVLAN {
				t.Errorf("%+v", r)
			}
		}
		tableOf(ranges)
	})
}
