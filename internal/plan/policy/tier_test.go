// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

// TestTierOrder: a tier whose object has no order is evaluated next to the tier default, before it or after it by its name,
// as Calico does (libcalico-go/lib/resources/tier.go). One without an object is the last.
func TestTierOrder(t *testing.T) {
	c := &cluster{tiers: tiers{}}
	for name, order := range map[model.PolicyTier]*float64{
		"alpha": nil, "zeta": nil, "late": new(3e7), "early": new(10.0), model.TierDefault: new(float64(defaultOrder)),
	} {
		c.setTier(model.Tier{Name: name, Order: order})
	}
	names := []model.PolicyTier{"no-object", "kube-baseline", "zeta", "late", model.TierDefault, "early", "alpha", "kube-admin"}
	slices.SortFunc(names, func(a, b model.PolicyTier) int { return c.tiers.named(a).compare(c.tiers.named(b)) })
	want := []model.PolicyTier{"early", "kube-admin", "alpha", model.TierDefault, "zeta", "kube-baseline", "late", "no-object"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}
