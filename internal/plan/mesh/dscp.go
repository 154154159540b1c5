// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// DSCPTable is the name of the table that sets the DSCP of packets that leave the cluster.
const DSCPTable = "weft-dscp"

// DSCPMark is a pod whose packets to destinations outside of the cluster get a DSCP value (RFC 2474). Link is the
// node's end of its interface.
type DSCPMark struct {
	Link string
	DSCP uint8
}

// dscp returns the table. It comes after DNAT, so that a pod behind a service's address counts as within the cluster.
// Pods with the same DSCP value share a chain, and a pod without one costs one map lookup.
func dscp(cfg Config, nodes []model.Node, held pools) state.Table {
	marked := slices.SortedFunc(
		slices.Values(cfg.DSCPMarks),
		func(a, b DSCPMark) int { return cmp.Compare(a.Link, b.Link) },
	)
	classes := state.Set{Name: "classes", Key: "ifname", Data: "verdict"}
	t := state.Table{Family: "inet", Name: DSCPTable, Sets: prefixSets("cluster", clusterPrefixes(cfg, nodes, held))}
	chain := func(m DSCPMark) string { return fmt.Sprintf("dscp%d", m.DSCP) }
	for _, m := range slices.CompactFunc(marked, func(a, b DSCPMark) bool { return a.Link == b.Link }) {
		classes.Elements = append(classes.Elements, state.Element{Key: []string{m.Link}, Val: []string{"jump " + chain(m)}})
		if slices.ContainsFunc(t.Chains, func(c state.Chain) bool { return c.Name == chain(m) }) {
			continue
		}
		t.Chains = append(t.Chains, state.Chain{Name: chain(m), Rules: []state.NftRule{
			{Text: "ip daddr @cluster4 return"},
			{Text: "ip6 daddr @cluster6 return"},
			{Text: fmt.Sprintf("ip dscp set %d", m.DSCP)},
			{Text: fmt.Sprintf("ip6 dscp set %d", m.DSCP)},
		}})
	}
	slices.SortFunc(t.Chains, func(a, b state.Chain) int { return cmp.Compare(a.Name, b.Name) })
	t.Sets = append(t.Sets, classes)
	const mangle = -150
	t.Chains = append(t.Chains, state.Chain{
		Name: "forward", Type: "filter", Hook: "forward", Priority: mangle, Policy: "accept",
		Rules: []state.NftRule{{Text: "iifname vmap @classes"}},
	})
	return t
}

// clusterPrefixes returns all addresses of the cluster: of its nodes, and of pods.
func clusterPrefixes(cfg Config, nodes []model.Node, held pools) []netip.Prefix {
	out := slices.Concat(held.unmanagedPrefixes(), cfg.Masquerade, cfg.Networks)
	for _, o := range held.all {
		for _, r := range o.Regions {
			out = append(out, r.CIDR)
		}
	}
	for _, n := range nodes {
		out = append(out, n.PodCIDRs...)
		for _, a := range addrsOf(n) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}
