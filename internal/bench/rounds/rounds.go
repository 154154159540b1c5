// SPDX-License-Identifier: Apache-2.0

// Package rounds compares what was measured in rounds in which all took turns: quotients are made of one round's
// values, and the median of the quotients is told, not the quotient of medians.
package rounds

import (
	"fmt"
	"slices"
)

// Quotients are those of the same rounds; rounds without a base are left out.
func Quotients(a, base []float64) []float64 {
	var out []float64
	for i := range min(len(a), len(base)) {
		if base[i] > 0 {
			out = append(out, a[i]/base[i])
		}
	}
	return out
}

// Spread is the median of values, the least and the greatest; zeros where there are none.
func Spread(values []float64) (median, least, most float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]
}

// Ratio prints a spread, the median alone where there is nothing else, and a dash for none.
func Ratio(median, least, most float64) string {
	switch {
	case median == 0:
		return "–"
	case most == 0:
		return fmt.Sprintf("%.2f", median)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median, least, most)
}
