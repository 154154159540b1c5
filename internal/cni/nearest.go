// SPDX-License-Identifier: Apache-2.0

package cni

import "strings"

// nearest returns the known word that is most similar to a wrong one, empty if none is similar.
func nearest(word string, known []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbors that turn a into b (optimal string
// alignment).
func distance(a, b string) int {
	const most = 64 // longer words are no typing errors
	if len(a) > most || len(b) > most {
		return most
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now := make([]int, len(b)+1)
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last = last, now
	}
	return last[len(b)]
}

// Nearest returns the known word that is most similar to a wrong one, empty if none is similar.
func Nearest(word string, known []string) string { return nearest(word, known) }
