// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// MasqueradeTable is the name of the table that masquerades pods' packets that leave the cluster.
const MasqueradeTable = "weft-cluster"

// masquerade returns the table that masquerades the packets of the cluster's pods to other destinations. Packets
// between pods keep their addresses. Ports are random: of two simultaneous connections that get the same free port, one
// would lose its first packet and retry after a second.
func masquerade(cfg Config, held pools) state.Table {
	how := "masquerade"
	if !cfg.PreservePorts {
		how += " fully-random"
	}
	sets := slices.Concat(prefixSets("cluster", append(held.unmanagedPrefixes(), cfg.Masquerade...)), prefixSets("keep", cfg.NoMasquerade))
	if len(held.all) > 0 {
		return held.masquerade(cfg, how)
	}
	return state.Table{Family: "inet", Name: MasqueradeTable, Sets: sets, Chains: []state.Chain{{
		Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept",
		Rules: []state.NftRule{
			{Text: "ip daddr 224.0.0.0/4 return"},
			{Text: "ip daddr @cluster4 return"},
			{Text: "ip daddr @keep4 return"},
			{Text: "ip saddr @cluster4 " + how},
			{Text: "ip6 daddr ff00::/8 return"},
			{Text: "ip6 daddr @cluster6 return"},
			{Text: "ip6 daddr @keep6 return"},
			{Text: "ip6 saddr @cluster6 " + how},
		},
	}}}
}

// prefixSets returns two sets, one for each family. Nested prefixes are merged, because the kernel rejects overlapping
// intervals.
func prefixSets(name string, prefixes []netip.Prefix) []state.Set {
	sets := []state.Set{
		{Name: name + "4", Key: "ipv4_addr", Interval: true}, {Name: name + "6", Key: "ipv6_addr", Interval: true},
	}
	for _, p := range outermost(prefixes) {
		s := &sets[0]
		if p.Addr().Is6() {
			s = &sets[1]
		}
		s.Elements = append(s.Elements, state.Element{Key: []string{p.String()}})
	}
	return sets
}

// outermost returns the prefixes that are not within another one.
func outermost(prefixes []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		sorted = append(sorted, p.Masked())
	}
	slices.SortFunc(sorted, comparePrefix)
	var out []netip.Prefix
	for _, p := range sorted {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// anyMasquerades reports whether there is a pool whose addresses are masqueraded.
func (p pools) anyMasquerades() bool {
	return slices.ContainsFunc(p.all, func(o model.AddressPool) bool { return o.NATOutgoing })
}

// masquerade returns the table if there are pools: each pool has its own setting, and packets between addresses of any
// pools are never masqueraded.
func (p pools) masquerade(cfg Config, how string) state.Table {
	all, open := p.unmanagedPrefixes(), []netip.Prefix(nil)
	hidden := slices.Clone(cfg.Masquerade)
	for _, o := range p.all {
		for _, r := range o.Regions {
			all = append(all, r.CIDR)
			if o.NATOutgoing {
				hidden = append(hidden, r.CIDR)
			} else {
				open = append(open, r.CIDR)
			}
		}
	}
	t := state.Table{Family: "inet", Name: MasqueradeTable, Sets: slices.Concat(
		prefixSets("cluster", append(all, cfg.Masquerade...)), prefixSets("keep", cfg.NoMasquerade), prefixSets("open", open),
		prefixSets("hidden", hidden),
	)}
	c := state.Chain{Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept"}
	for _, f := range []struct{ family, version, multicast string }{{"ip", "4", "224.0.0.0/4"}, {"ip6", "6", "ff00::/8"}} {
		for _, rule := range []string{
			"daddr " + f.multicast + " return", "daddr @cluster" + f.version + " return", "daddr @keep" + f.version + " return",
			"saddr @open" + f.version + " return", "saddr @hidden" + f.version + " " + how,
		} {
			c.Rules = append(c.Rules, state.NftRule{Text: f.family + " " + rule})
		}
	}
	t.Chains = []state.Chain{c}
	return t
}
