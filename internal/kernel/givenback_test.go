// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"testing"

	"github.com/weft-net/weft/internal/state"
)

// givenBack takes a link that there is, twice, and gives it back, twice, by each way of undo: the second time there is
// nothing to do. What begin makes is then as it was. Look is called when the link is taken, and each time that it has
// been given back.
func givenBack(
	t *testing.T, begin func(*testing.T, Spaces) (f, before state.Fragment), look func(t *testing.T, s Spaces, taken bool),
) {
	for name, undo := range map[string]func(Spaces, *testing.T, state.Fragment) error{
		"remove":  func(s Spaces, t *testing.T, f state.Fragment) error { return s.Remove(t.Context(), f) },
		"release": func(s Spaces, t *testing.T, f state.Fragment) error { return s.Release(t.Context(), f) },
	} {
		t.Run(name, func(t *testing.T) {
			s := pair(t)
			f, before := begin(t, s)
			wantSame(t, s, before)
			if err := undo(s, t, f); err != nil { // nothing has happened yet
				t.Fatal(err)
			}
			wantSame(t, s, before)
			mustApply(t, s, f)
			writes := s.Host.Writes() + s.Pod.Writes()
			mustApply(t, s, f)
			if n := s.Host.Writes() + s.Pod.Writes() - writes; n != 0 {
				t.Errorf("a second Apply wrote %d times", n)
			}
			look(t, s, true)
			for range 2 {
				if err := errors.Join(undo(s, t, f), s.Restore(t.Context(), before)); err != nil {
					t.Fatal(err)
				}
				wantSame(t, s, before)
				look(t, s, false)
			}
		})
	}
}
