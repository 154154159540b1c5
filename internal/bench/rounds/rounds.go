// SPDX-License-Identifier: Apache-2.0

// Package rounds compares values that were measured in interleaved rounds: a ratio is the median of the rounds'
// quotients, not the quotient of medians.
package rounds

import (
	"fmt"
	"math"
	"slices"
)

// Quotients returns a[i]/base[i] for each round; rounds with a base of 0 are skipped.
func Quotients(a, base []float64) []float64 {
	var out []float64
	for i := range min(len(a), len(base)) {
		if base[i] > 0 {
			out = append(out, a[i]/base[i])
		}
	}
	return out
}

// Spread returns the median, minimum and maximum of values; zeros if there are none.
func Spread(values []float64) (median, low, high float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]
}

// Interval returns the median of values and its confidence interval of 95 %, by ranks, without an assumption about their
// distribution. Of less than six values the interval is all of them.
func Interval(values []float64) (median, low, high float64) {
	median, low, high = Spread(values)
	s := slices.Sorted(slices.Values(values))
	const outside = 0.025 // the chance that the median is below the interval, and above it
	// chance is that of exactly k of n values below the median, below that of at most k.
	chance, below := math.Pow(0.5, float64(len(s))), 0.0
	for k := 0; k < len(s)/2; k++ {
		if below += chance; below > outside {
			break
		}
		low, high = s[k], s[len(s)-1-k]
		chance *= float64(len(s)-k) / float64(k+1)
	}
	return median, low, high
}

// Ratio formats a spread; only the median if high is 0, and a dash if the median is 0.
func Ratio(median, low, high float64) string {
	switch {
	case median == 0:
		return "–"
	case high == 0:
		return fmt.Sprintf("%.2f", median)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median, low, high)
}
