// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// setKey names a network set; without a namespace it is a GlobalNetworkSet.
type setKey struct{ namespace, name string }

// networkSet is a network set. Rules have its prefixes as ranges: there are few sets, and they seldom change.
type networkSet struct {
	labels map[string]string
	blocks []*model.IPBlock
	// incomplete: some of its prefixes are not known.
	incomplete bool
}

// networkSets are the network sets.
type networkSets map[setKey]*networkSet

// put adds or replaces a network set, and reports whether that changed anything.
func (ns networkSets) put(in model.NetworkSet) bool {
	key := setKey{in.Namespace, in.Name}
	next := &networkSet{labels: maps.Clone(in.Labels), incomplete: in.Incomplete}
	for _, p := range in.Nets {
		next.blocks = append(next.blocks, &model.IPBlock{CIDR: p})
	}
	if was := ns[key]; was != nil && was.incomplete == next.incomplete && maps.Equal(was.labels, next.labels) &&
		slices.EqualFunc(was.blocks, next.blocks, func(a, b *model.IPBlock) bool { return a.CIDR == b.CIDR }) {
		return false
	}
	ns[key] = next
	return true
}

// in reports whether a namespace has network sets.
func (ns networkSets) in(namespace string) bool {
	for key := range ns {
		if key.namespace == namespace {
			return true
		}
	}
	return false
}

// selectedNets returns the prefixes of all network sets that a term selects, and the addresses of host endpoints.
func (c *cluster) selectedNets(t term) (out []*model.IPBlock) {
	for _, key := range slices.SortedFunc(maps.Keys(c.sets), func(a, b setKey) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	}) {
		if c.selectsSet(t, key) {
			out = append(out, c.sets[key].blocks...)
		}
	}
	for _, h := range c.hosts {
		if selectsHost(t, h) {
			for _, a := range h.Addrs {
				out = append(out, &model.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen())})
			}
		}
	}
	return out
}

func (c *cluster) selectsSet(t term, key setKey) bool {
	return t.endpoints != nil && (t.namespace == "" || t.namespace == key.namespace) &&
		t.endpoints.Matches(networkSetView{c.pods.namespaces[key.namespace], key, c.sets[key].labels})
}

func selectsHost(t term, h model.HostEndpoint) bool {
	return t.endpoints != nil && t.namespace == "" && t.endpoints.Matches(hostView(h))
}

// incomplete reports whether not all addresses of what a peer selects are known.
func (c *cluster) incomplete(p *model.PodPeer) bool {
	if p == nil {
		return false
	}
	t := compileTerm(*p)
	for key, s := range c.sets {
		if s.incomplete && c.selectsSet(t, key) {
			return true
		}
	}
	return slices.ContainsFunc(c.hosts, func(h model.HostEndpoint) bool { return h.Incomplete && selectsHost(t, h) })
}

// failClosed returns the rule without what depends on addresses that are not known: it allows none of them, and denies all
// that it might deny or pass.
func (c *cluster) failClosed(in model.PolicyRule) model.PolicyRule {
	if in.Conditions == nil || in.Action == model.PolicyLog {
		return in
	}
	out := *in.Conditions
	unknown, excluded := false, false
	for _, e := range []*model.EndConditions{&out.Source, &out.Destination} {
		excluded = excluded || c.incomplete(e.NotPeer)
		if c.incomplete(e.Peer) {
			unknown = true
			if in.Action != model.PolicyAccept {
				e.Peer = nil
			}
		}
	}
	switch {
	case in.Action == model.PolicyAccept && excluded:
		return model.PolicyRule{Name: in.Name, Action: model.PolicyAccept} // without peers it matches nothing
	case in.Action == model.PolicyPass && (unknown || excluded):
		in.Action = model.PolicyDeny
	}
	in.Conditions = &out
	return in
}

// networkSetView is how Calico sees the labels of a network set.
type networkSetView struct {
	in     *namespace // nil: not known, or none
	key    setKey
	labels map[string]string
}

func (networkSetView) All() bool { return true }

func (v networkSetView) Label(key string) (string, bool) {
	if rest, is := strings.CutPrefix(key, model.NamespaceLabelPrefix); is {
		switch {
		case v.key.namespace == "":
			return "", false
		case v.in != nil:
			return v.in.derived(rest)
		}
		return v.key.namespace, rest == model.DerivedNameLabel
	}
	if key == model.NamespaceLabel {
		return v.key.namespace, v.key.namespace != ""
	}
	value, is := v.labels[key]
	return value, is
}
