// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"testing"

	"github.com/weft-net/weft/internal/state"
)

// testMoveBack moves an existing link, twice, and moves it back, twice, by each kind of undo: the second time is a no-op.
// What begin creates is restored. Look is called after each move there and back.
func testMoveBack(
	t *testing.T,
	begin func(*testing.T, Spaces) (f, before state.Fragment),
	check func(t *testing.T, s Spaces, taken bool),
) {
	for name, undo := range map[string]func(Spaces, *testing.T, state.Fragment) error{
		"remove":  func(s Spaces, t *testing.T, f state.Fragment) error { return s.Remove(t.Context(), f) },
		"release": func(s Spaces, t *testing.T, f state.Fragment) error { return s.Release(t.Context(), f) },
	} {
		t.Run(name, func(t *testing.T) {
			s := pair(t)
			f, before := begin(t, s)
			wantSame(t, s, before)
			if err := undo(s, t, f); err != nil { // nothing has been changed yet
				t.Fatal(err)
			}
			wantSame(t, s, before)
			mustApply(t, s, f)
			writes := s.Host.Writes() + s.Pod.Writes()
			mustApply(t, s, f)
			if n := s.Host.Writes() + s.Pod.Writes() - writes; n != 0 {
				t.Errorf("a second Apply wrote %d times", n)
			}
			check(t, s, true)
			for range 2 {
				if err := errors.Join(undo(s, t, f), s.Restore(t.Context(), before)); err != nil {
					t.Fatal(err)
				}
				wantSame(t, s, before)
				check(t, s, false)
			}
		})
	}
}
