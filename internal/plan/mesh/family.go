// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// The metrics of the mesh's routes: MetricMin <= metric < MetricMax; and of those learned by BGP: MetricMax <= metric <
// LearnedMax. A route of the mesh is used before a learned one.
const (
	MetricMin  uint32 = 1 << 24
	MetricMax  uint32 = 1 << 25
	LearnedMax uint32 = 1 << 26
)

// Protocol is weft's route protocol number, "w".
const Protocol uint8 = 0x77

const mainTable = 254

// Owns reports whether a route belongs to the mesh.
func Owns(r state.Route) bool {
	return r.Protocol == Protocol && (r.Table == 0 || r.Table == mainTable) && r.Metric >= MetricMin &&
		r.Metric < LearnedMax
}

// IsLearned reports whether a route of the mesh was learned by BGP.
func IsLearned(r state.Route) bool { return Owns(r) && r.Metric >= MetricMax }

// LearnedRoute returns a route to a learned prefix over a link with the metric and protocol of such routes; the caller adds
// gateways. The metric depends on the link, so that a route exists before the earlier one over another link is deleted.
func LearnedRoute(p netip.Prefix, link string) state.Route {
	h := fnv.New32a()
	_, _ = h.Write([]byte(link + " " + p.String()))
	return state.Route{Dst: p, Link: link, Metric: MetricMax + h.Sum32()%(LearnedMax-MetricMax), Protocol: Protocol}
}

// metrics assigns each prefix of a cluster a metric of its own. It is derived from the prefix unless two collide, so
// that a node that joins or leaves does not change the metrics of others.
func metrics(nodes []model.Node, held pools) (out map[netip.Prefix]uint32, displaced []displacedMetric) {
	out = make(map[netip.Prefix]uint32, len(nodes))
	taken := make(map[uint32]bool, len(nodes))
	add := func(p netip.Prefix) {
		if _, ok := out[p]; ok {
			return
		}
		own := metricOf(p)
		m := own
		for taken[m] {
			if m++; m == MetricMax {
				m = MetricMin
			}
		}
		taken[m], out[p] = true, m
		if m != own {
			displaced = append(displaced, displacedMetric{p, own, m})
		}
	}
	for _, n := range nodes {
		for _, p := range firstPerFamily(n.PodCIDRs) {
			add(p)
		}
		for _, s := range held.byNode[n.Name] {
			add(s.cidr)
		}
	}
	return out, displaced
}

// metricOf returns the metric that is derived from a prefix.
func metricOf(p netip.Prefix) uint32 {
	var text [64]byte
	h := fnv.New32a()
	_, _ = h.Write(p.AppendTo(text[:0]))
	return MetricMin + h.Sum32()%(MetricMax-MetricMin)
}

// displacedMetric is the metric of a prefix whose own one was taken: the next free one.
type displacedMetric struct {
	prefix      netip.Prefix
	own, metric uint32
}

// probed reports whether a metric was taken when this one was chosen.
func (d displacedMetric) probed(m uint32) bool {
	if d.own <= d.metric {
		return d.own <= m && m < d.metric
	}
	return m >= d.own || m < d.metric
}

func families() []int { return []int{4, 6} }

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// addrsOf returns a node's addresses in order of precedence: those that it publishes, then its own.
func addrsOf(n model.Node) []netip.Addr {
	out := []netip.Addr{}
	if n.Published != nil {
		out = append(out, n.Published.Addrs...)
	}
	for _, a := range n.Addrs {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// HasAddr reports whether a node has or publishes an address.
func HasAddr(n model.Node, a netip.Addr) bool { return slices.Contains(addrsOf(n), a) }

// addrOf returns a node's preferred address of a family.
func addrOf(n model.Node, family int) (netip.Addr, bool) {
	if n.Published != nil {
		if a, ok := addrIn(n.Published.Addrs, family); ok {
			return a, true
		}
	}
	return addrIn(n.Addrs, family)
}

func addrIn(addrs []netip.Addr, family int) (netip.Addr, bool) {
	for _, a := range addrs {
		if familyOf(a) == family {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// firstPerFamily returns the first prefix of each family.
func firstPerFamily(cidrs []netip.Prefix) []netip.Prefix {
	out := []netip.Prefix{}
	for _, c := range cidrs {
		c = c.Masked()
		if c.IsValid() && !slices.ContainsFunc(out, func(o netip.Prefix) bool {
			return familyOf(o.Addr()) == familyOf(c.Addr())
		}) {
			out = append(out, c)
		}
	}
	return out
}

// enabledFamilies leaves of nodes what is of families that are on.
func (c Config) enabledFamilies(nodes []model.Node) []model.Node {
	off := func(family int) bool {
		return len(c.Networks) > 0 && !slices.ContainsFunc(c.Networks, func(n netip.Prefix) bool {
			return familyOf(n.Addr()) == family
		})
	}
	if !off(4) && !off(6) {
		return nodes
	}
	out := make([]model.Node, 0, len(nodes))
	for _, n := range nodes {
		n.PodCIDRs = slices.DeleteFunc(slices.Clone(n.PodCIDRs), func(p netip.Prefix) bool { return off(familyOf(p.Addr())) })
		n.Addrs = slices.DeleteFunc(slices.Clone(n.Addrs), func(a netip.Addr) bool { return off(familyOf(a)) })
		if n.Published != nil {
			published := *n.Published
			published.Addrs = slices.DeleteFunc(slices.Clone(published.Addrs), func(a netip.Addr) bool {
				return off(familyOf(a))
			})
			n.Published = &published
		}
		out = append(out, n)
	}
	return out
}

// comparePrefix sorts a prefix before those within it.
func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
