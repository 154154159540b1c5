// SPDX-License-Identifier: Apache-2.0

package addressclaims

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

// TestClaimIPs: a claim's status keeps the addresses that it had, after those that its pod has now.
func TestClaimIPs(t *testing.T) {
	now := []model.IP{{Address: netip.MustParsePrefix("10.0.0.2/24")}, {Address: netip.MustParsePrefix("fd00::2/64")}}
	for _, c := range []struct {
		name         string
		before, want any
	}{
		{"a claim without addresses", nil, []any{"10.0.0.2/24", "fd00::2/64"}},
		{"the same again", []any{"fd00::2/64", "10.0.0.2"}, []any{"10.0.0.2/24", "fd00::2/64"}},
		{"another one before", []any{"10.9.0.7/24", "10.0.0.2/24"}, []any{"10.0.0.2/24", "fd00::2/64", "10.9.0.7/24"}},
		{"not an address", []any{"x", 5}, []any{"10.0.0.2/24", "fd00::2/64", "x", 5}},
	} {
		if d := cmp.Diff(c.want, any(claimIPs(now, c.before))); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}
