// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// tier is a step of the evaluation: the policies of a tier are evaluated in order, until a rule decides or passes to the
// next tier.
type tier struct {
	name  model.PolicyTier
	order float64
	// missing: there is no Tier object of that name. Its policies are evaluated after all others (as in Calico).
	missing bool
	// pass: what no rule matches continues in the next tier; otherwise it is denied.
	pass bool
}

// Orders of the tiers that Calico has by default. Kubernetes' policies have their places among them.
const (
	adminOrder         = 1000
	defaultOrder       = 1_000_000 // of the tier default, and of those whose object has no order
	baselineOrder      = 10_000_000
	networkPolicyOrder = 1000 // of NetworkPolicies in the tier default
)

func (t tier) compare(o tier) int {
	one := func(t tier) int {
		if t.missing {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(one(t), one(o)), cmp.Compare(t.order, o.order), strings.Compare(string(t.name), string(o.name)))
}

// tiers are the Tier objects.
type tiers map[model.PolicyTier]tier

// of returns the tier of a policy.
func (ts tiers) of(p *model.Policy) tier {
	switch {
	case p.Kind == model.KindClusterNetworkPolicy && p.Tier == model.TierBaseline:
		return tier{name: "kube-baseline", order: baselineOrder, pass: true}
	case p.Kind == model.KindClusterNetworkPolicy:
		return tier{name: "kube-admin", order: adminOrder, pass: true}
	case p.Kind == model.KindMultiNetworkPolicy:
		return tier{name: model.TierDefault, order: defaultOrder} // Calico's tiers are of the cluster's network
	case !p.Kind.Calico():
		return ts.named(model.TierDefault)
	}
	return ts.named(p.Tier)
}

// named returns the tier of a name. Those that Calico always has need no object.
func (ts tiers) named(name model.PolicyTier) tier {
	if t, is := ts[name]; is {
		return t
	}
	switch name {
	case model.TierDefault:
		return tier{name: name, order: defaultOrder}
	case "kube-admin":
		return tier{name: name, order: adminOrder, pass: true}
	case "kube-baseline":
		return tier{name: name, order: baselineOrder, pass: true}
	}
	return tier{name: name, order: math.Inf(1), missing: true}
}

// setTier sets a tier, and reports whether that changed anything. What Kubernetes' policies isolate stays isolated.
func (c *cluster) setTier(in model.Tier) bool {
	t := tier{name: in.Name, order: defaultOrder, pass: in.Pass && in.Name != model.TierDefault}
	if in.Order != nil {
		t.order = *in.Order
	}
	if was, is := c.tiers[in.Name]; is && was == t {
		return false
	}
	c.tiers[in.Name] = t
	slices.SortFunc(c.wide, c.tiers.compare)
	return true
}

// delTier deletes a tier, and reports whether there was one.
func (c *cluster) delTier(name model.PolicyTier) bool {
	if _, is := c.tiers[name]; !is {
		return false
	}
	delete(c.tiers, name)
	slices.SortFunc(c.wide, c.tiers.compare)
	return true
}

// orderOf returns the order of a policy; nil is the last.
func orderOf(order *float64) float64 {
	if order == nil {
		return math.Inf(1)
	}
	return *order
}

// compare compares policies by their order of evaluation. Two of one order are evaluated in the order of their names, as
// in Calico, which compares them with the slash before the namespace: "a-b" goes before "a". The specification of
// ClusterNetworkPolicies leaves it open, and it should be deterministic.
func (ts tiers) compare(a, b *policy) int {
	order := func(p *policy) float64 {
		switch {
		case p.Kind == model.KindClusterNetworkPolicy:
			return float64(p.Priority)
		case p.Kind.Calico():
			return orderOf(p.Order)
		}
		return networkPolicyOrder
	}
	return cmp.Or(ts.of(&a.Policy).compare(ts.of(&b.Policy)), cmp.Compare(order(a), order(b)),
		compareUpToSlash(a.Name, b.Name), compareUpToSlash(a.Namespace, b.Namespace),
		strings.Compare(string(a.Kind), string(b.Kind)))
}

// compareUpToSlash compares texts without slashes as if each had one at its end.
func compareUpToSlash(a, b string) int {
	n := min(len(a), len(b))
	switch c := strings.Compare(a[:n], b[:n]); {
	case c != 0 || len(a) == len(b):
		return c
	case len(a) < len(b):
		return cmp.Compare('/', b[n])
	default:
		return cmp.Compare(a[n], '/')
	}
}
