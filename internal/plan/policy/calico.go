// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
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
	f.index.version++
	f.index.hosts.dirty = true
	for _, e := range f.index.endpoints.all {
		f.index.endpoints.dirty[e] = true
	}
}

// SetNetworkSet adds or replaces a network set.
func (f CalicoFacts) SetNetworkSet(s model.NetworkSet) {
	if f.index.cluster.sets.put(s) {
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
	f.index.version++
	for _, p := range f.index.cluster.wide {
		if p.Kind.Calico() {
			f.index.compiler.forget(p)
			f.index.tables.stale[p.PolicyKey] = true
		}
	}
}

// SetEndpointSlice adds or replaces a part of a Service's endpoints.
func (f CalicoFacts) SetEndpointSlice(s model.EndpointSlice) {
	was := f.index.cluster.slices[setKey{s.Namespace, s.Name}]
	if f.index.cluster.slices.put(s) {
		f.serviceChanged(s.Namespace, was.Service, s.Service)
	}
}

// DelEndpointSlice deletes a part of a Service's endpoints.
func (f CalicoFacts) DelEndpointSlice(namespace, name string) {
	key := setKey{namespace, name}
	if was, is := f.index.cluster.slices[key]; is {
		delete(f.index.cluster.slices, key)
		f.serviceChanged(namespace, was.Service)
	}
}

// serviceChanged compiles the policies again that match the endpoints of a Service.
func (f CalicoFacts) serviceChanged(namespace string, names ...string) {
	f.index.version++
	for _, p := range f.index.cluster.wide {
		if slices.ContainsFunc(p.Services(), func(s model.ServiceMatch) bool {
			return s.Namespace == namespace && slices.Contains(names, s.Name)
		}) {
			f.index.compiler.forget(p)
			f.index.tables.stale[p.PolicyKey] = true
		}
	}
}

// SetServiceAccount adds or replaces a service account.
func (f CalicoFacts) SetServiceAccount(a model.ServiceAccount) {
	f.accountChanged(f.index.cluster.pods.setAccount(a.Namespace, a.Name, a.Labels))
}

// DelServiceAccount deletes a service account.
func (f CalicoFacts) DelServiceAccount(namespace, name string) {
	f.accountChanged(f.index.cluster.pods.setAccount(namespace, name, nil))
}

func (f CalicoFacts) accountChanged(s *namespace) {
	if s != nil {
		f.index.version++
		f.index.groups.reselect(s)
		f.index.endpoints.markNamespace(s.name)
	}
}

// SetHostEndpoint adds or replaces a host endpoint of any node.
func (f CalicoFacts) SetHostEndpoint(h model.HostEndpoint) {
	f.index.version++
	f.index.hosts.set(h)
}

// DelHostEndpoint deletes a host endpoint.
func (f CalicoFacts) DelHostEndpoint(name string) {
	f.index.version++
	f.index.hosts.del(name)
}

// SetHostEndpointController sets how host endpoints are created for all nodes; the zero value creates none.
func (f CalicoFacts) SetHostEndpointController(c model.HostEndpointController) {
	f.index.version++
	f.index.hosts.setController(c)
}

// SetFelixConfiguration adds or replaces one of the configurations of Calico's nodes.
func (f CalicoFacts) SetFelixConfiguration(c model.FelixConfiguration) {
	f.index.version++
	f.index.hosts.setFelix(c.Name, &c)
}

// DelFelixConfiguration deletes one.
func (f CalicoFacts) DelFelixConfiguration(name string) {
	f.index.version++
	f.index.hosts.setFelix(name, nil)
}

// SetInterfaces sets this node's interfaces, which host endpoints without an interface's name are found by.
func (f CalicoFacts) SetInterfaces(all []hostendpoint.Interface) {
	f.index.version++
	f.index.hosts.setInterfaces(all)
}

// NeedsInterfaces reports whether this node's interfaces decide anything.
func (f CalicoFacts) NeedsInterfaces() bool { return f.index.hosts.needsInterfaces() }

// HasHosts reports whether there are host endpoints, of any node.
func (f CalicoFacts) HasHosts() bool { return f.index.hosts.any() }

// HasHostEndpoint reports whether a host endpoint of that name was set, of any node.
func (f CalicoFacts) HasHostEndpoint(name string) bool {
	_, is := f.index.hosts.stored[name]
	return is
}
