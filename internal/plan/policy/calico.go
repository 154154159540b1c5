// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/weft-net/weft/internal/model"
)

// CalicoFacts is an index's front for what only Calico's policies use.
type CalicoFacts struct{ index *Index }

// Calico returns the front for what only Calico's policies use.
func (x *Index) Calico() CalicoFacts { return CalicoFacts{x} }

// SetTier adds or replaces a tier.
func (f CalicoFacts) SetTier(t model.Tier) {
	if f.index.cluster.setTier(t) {
		f.tiersChanged()
	}
}

// DelTier deletes a tier. Policies that are in it are evaluated after all others.
func (f CalicoFacts) DelTier(name model.PolicyTier) {
	if f.index.cluster.delTier(name) {
		f.tiersChanged()
	}
}

func (f CalicoFacts) tiersChanged() {
	for _, e := range f.index.endpoints.all {
		f.index.endpoints.dirty[e] = true
	}
}

// SetNetworkSet adds or replaces a network set.
func (f CalicoFacts) SetNetworkSet(s model.NetworkSet) {
	if f.index.cluster.setNetworkSet(s) {
		f.setsChanged()
	}
}

// DelNetworkSet deletes a network set; without a namespace a GlobalNetworkSet.
func (f CalicoFacts) DelNetworkSet(namespace, name string) {
	key := setKey{namespace, name}
	if f.index.cluster.sets[key] != nil {
		delete(f.index.cluster.sets, key)
		f.setsChanged()
	}
}

// setsChanged compiles all of Calico's policies again, whose rules have the prefixes of the sets.
func (f CalicoFacts) setsChanged() {
	for _, p := range f.index.cluster.wide {
		if p.Kind.Calico() {
			f.index.compiler.forget(p)
			f.index.tables.stale[p.PolicyKey] = true
		}
	}
}

// SetServiceAccount adds or replaces a service account.
func (f CalicoFacts) SetServiceAccount(a model.ServiceAccount) {
	f.accountChanged(f.index.cluster.setAccount(a.Namespace, a.Name, a.Labels))
}

// DelServiceAccount deletes a service account.
func (f CalicoFacts) DelServiceAccount(namespace, name string) {
	f.accountChanged(f.index.cluster.setAccount(namespace, name, nil))
}

func (f CalicoFacts) accountChanged(s *namespace) {
	if s != nil {
		f.index.groups.reselect(s)
		f.index.endpoints.markNamespace(s.name)
	}
}
