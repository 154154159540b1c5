// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	"pgregory.net/rapid"
)

// Compiled selectors are true of what the model's are.
func TestSelectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, ls := drawSelector(t), drawLabels(t)
		if want, got := s.Matches(ls), compileSelector(s).matches(intern(ls)); want != got {
			t.Fatalf("%s of %v: %v, want %v", s, ls, got, want)
		}
	})
}
