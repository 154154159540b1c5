// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"regexp"
	"slices"
	"strings"
)

// scrub removes from ip's output what the kernel chooses or changes itself: indexes, multicast routes, and the order of
// equals.
func scrub(out string) string {
	index := regexp.MustCompile(`@if\d+`)
	var lines []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "multicast") || strings.Contains(line, "fe80::") || strings.Contains(line, "ff00::") {
			continue
		}
		lines = append(lines, strings.TrimRight(index.ReplaceAllString(line, "@if"), " \n"))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}
