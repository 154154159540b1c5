// SPDX-License-Identifier: Apache-2.0

package rounds

import "testing"

func TestRounds(t *testing.T) {
	m, least, most := Spread(Quotients([]float64{2, 9, 6, 8}, []float64{1, 0, 2, 2}))
	if m != 3 || least != 2 || most != 4 {
		t.Errorf("%v (%v–%v), want 3 (2–4)", m, least, most)
	}
	if s := Ratio(Spread([]float64{1, 2})); s != "1.50 (1.00–2.00)" {
		t.Error(s)
	}
	if s := Ratio(1.234, 0, 0); s != "1.23" {
		t.Error(s)
	}
	if s := Ratio(Spread(nil)); s != "–" {
		t.Error(s)
	}
}
