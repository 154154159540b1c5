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

func TestInterval(t *testing.T) {
	values := make([]float64, 31)
	for i := range values {
		values[i] = float64((i*7)%31 + 1) // 1 to 31
	}
	if m, low, high := Interval(values); m != 16 || low != 10 || high != 22 { // the ranks of a table of the binomial test
		t.Errorf("%v (%v–%v), want 16 (10–22)", m, low, high)
	}
	if m, low, high := Interval(values[:5]); m != 15 || low != 1 || high != 29 {
		t.Errorf("%v (%v–%v) of %v", m, low, high, values[:5])
	}
	if m, low, high := Interval(nil); m != 0 || low != 0 || high != 0 {
		t.Errorf("%v (%v–%v) of nothing", m, low, high)
	}
}
