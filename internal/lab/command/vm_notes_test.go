// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNotes: notes returns the notes of a background process's log, and no other lines.
func TestNotes(t *testing.T) {
	got := notes(
		"weft: note: pod a/b: ignored: image\nweft: note: disk a is skipped\nlevel=INFO msg=x\nweft: VM a/b is running\nweft: note: another\n",
	)
	if d := cmp.Diff([]string{"weft: note: disk a is skipped", "weft: note: another"}, got); d != "" {
		t.Error(d)
	}
}
