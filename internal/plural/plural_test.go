// SPDX-License-Identifier: Apache-2.0

package plural_test

import (
	"testing"

	"github.com/weft-net/weft/internal/plural"
)

func TestCount(t *testing.T) {
	for want, n := range map[string]int{"0 entries": 0, "1 entry": 1, "2 entries": 2} {
		if got := plural.Count(n, "entry", "entries"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
