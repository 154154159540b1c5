// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"cmp"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// merged are the ports of one protocol as ranges of which no two overlap or touch, in order.
func merged(ports []model.VMPorts, protocol string) []model.VMPorts {
	var all, out []model.VMPorts
	for _, r := range ports {
		if r.Protocol == protocol {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b model.VMPorts) int { return cmp.Compare(a.First, b.First) })
	for _, r := range all {
		if n := len(out); n > 0 && int(r.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}
