// SPDX-License-Identifier: Apache-2.0

// Package plural writes numbers with their nouns.
package plural

import "fmt"

// Count returns a number with its noun, which is in the plural unless the number is one: 1 pod, 2 pods.
func Count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
