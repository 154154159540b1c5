// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"cmp"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// merged returns the ports of one protocol as sorted ranges, without overlapping or adjacent ones.
func merged(ports []model.VMPortRange, protocol string) []model.VMPortRange {
	var all, out []model.VMPortRange
	for _, r := range ports {
		if r.Protocol == protocol {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b model.VMPortRange) int { return cmp.Compare(a.First, b.First) })
	for _, r := range all {
		if n := len(out); n > 0 && int(r.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}
