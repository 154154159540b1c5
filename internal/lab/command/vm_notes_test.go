// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNotes: who starts a machine in the background is told what its log notes, and nothing else of it.
func TestNotes(t *testing.T) {
	got := notes(
		"weft: note: pod a/b: not done: image\nweft: note: disk a is left out\nlevel=INFO msg=x\nweft: machine a/b runs\nweft: note: another\n",
	)
	if d := cmp.Diff([]string{"weft: note: disk a is left out", "weft: note: another"}, got); d != "" {
		t.Error(d)
	}
}
