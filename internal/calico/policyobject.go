// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// AllPolicyKinds returns the kinds of all policies that weft enforces: Kubernetes' and Calico's own.
func AllPolicyKinds() []store.Kind {
	own := []store.Kind{store.NetworkPolicies(), store.ClusterNetworkPolicies(), store.MultiNetworkPolicies()}
	return slices.Concat(own, NetworkPolicies(), GlobalNetworkPolicies())
}

// AnyPolicy returns an object of one of AllPolicyKinds as the model's policy, see Policy and store.Object.Policy.
func AnyPolicy(o store.Object) (model.Policy, error) {
	if IsPolicy(o.Key) || Derived(o.Key) {
		return Policy(o)
	}
	return o.Policy()
}

// Find reads the object of a policy, in the group that has it, and with the tier's name before its own where it is stored
// so. The error wraps store.ErrNotFound if there is none.
func Find(ctx context.Context, objects store.Objects, key model.PolicyKey) (store.Kind, store.Object, error) {
	kinds := GlobalNetworkPolicies()
	if key.Kind == model.KindCalicoNetworkPolicy {
		kinds = NetworkPolicies()
	}
	var failed error
	for _, kind := range kinds {
		for _, name := range []string{string(model.TierDefault) + "." + key.Name, key.Name} {
			o, err := objects.Get(ctx, kind, kind.Key(key.Namespace, name))
			if err == nil {
				return kind, o, nil
			}
			if failed == nil || !errors.Is(err, store.ErrNotFound) {
				failed = err
			}
		}
	}
	return store.Kind{}, store.Object{}, failed
}

// Facts receive what only Calico's policies use.
type Facts interface {
	SetTier(model.Tier)
	SetNetworkSet(model.NetworkSet)
	SetServiceAccount(model.ServiceAccount)
	SetEndpointSlice(model.EndpointSlice)
}

// HostFacts are Facts that receive host endpoints, too.
type HostFacts interface {
	SetHostEndpoint(model.HostEndpoint)
	SetHostEndpointController(model.HostEndpointController)
	SetFelixConfiguration(model.FelixConfiguration)
}

// Fill reads what policies use of a cluster, if there are some of Calico's: tiers, network sets and service accounts, host
// endpoints and what configures them if it is one of HostFacts that receives them, and the endpoints of Services if a rule
// matches them. An object that is stored in both groups is read from that of stored objects last. Of invalid objects only the
// valid parts are read; invalid says what is not, and err what could not be read from the cluster.
func Fill(ctx context.Context, objects store.Objects, policies []model.Policy, into Facts) (invalid []error, err error) {
	if !slices.ContainsFunc(policies, func(p model.Policy) bool { return p.Kind.Calico() }) {
		return nil, nil
	}
	var failed []error
	each := func(kinds []store.Kind, set func(store.Object) error) {
		for _, kind := range slices.Backward(kinds) {
			err := store.Each(ctx, objects, kind, func(o store.Object) {
				if err := set(o); err != nil {
					invalid = append(invalid, err)
				}
			})
			if !errors.Is(err, store.ErrNotFound) {
				failed = append(failed, err)
			}
		}
	}
	each(Tiers(), func(o store.Object) error {
		t, err := Tier(o)
		if t != nil {
			into.SetTier(*t)
		}
		return err
	})
	each(slices.Concat(NetworkSets(), GlobalNetworkSets()), func(o store.Object) error {
		s, err := NetworkSet(o)
		if s != nil {
			into.SetNetworkSet(*s)
		}
		return err
	})
	each([]store.Kind{store.ServiceAccounts()}, func(o store.Object) error {
		a, err := o.ServiceAccount()
		if err == nil {
			into.SetServiceAccount(a)
		}
		return err
	})
	if hosts, is := into.(HostFacts); is {
		fillHosts(hosts, each)
	}
	if slices.ContainsFunc(policies, func(p model.Policy) bool { return len(p.Services()) > 0 }) {
		each([]store.Kind{store.EndpointSlices()}, func(o store.Object) error {
			s, err := o.EndpointSlice()
			if err == nil {
				into.SetEndpointSlice(s)
			}
			return err
		})
	}
	return invalid, errors.Join(failed...)
}

// fillHosts reads host endpoints, and what configures them.
func fillHosts(into HostFacts, each func(kinds []store.Kind, set func(store.Object) error)) {
	each(HostEndpoints(), func(o store.Object) error {
		h, err := HostEndpoint(o)
		if h != nil {
			into.SetHostEndpoint(*h)
		}
		return err
	})
	each(FelixConfigurations(), func(o store.Object) error {
		f, err := FelixConfiguration(o)
		if f != nil {
			into.SetFelixConfiguration(*f)
		}
		return err
	})
	each(ControllersConfigurations(), func(o store.Object) error {
		c, err := HostEndpointController(o)
		if c != nil && o.Key.Name == defaultControllers {
			into.SetHostEndpointController(*c)
		}
		return err
	})
}
