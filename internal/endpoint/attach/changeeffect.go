// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/state"
)

// changeEffect is what a change on the node means for an attachment.
type changeEffect int

const (
	noEffect changeEffect = iota
	// nearby: an object of another program changed, on a link or with an address of the attachment. That may have taken
	// an object of the attachment along.
	nearby
	// lossOf: an object of the attachment was removed or overwritten.
	lossOf
)

// effect returns what a change on the node means for the objects. vm reports whether a VM may have changed them.
func (o *objects) effect(c watch.Change, vm func() bool) changeEffect {
	switch c.Kind {
	case watch.Link:
		switch l, is := o.links[c.Link]; {
		case is && linkDrifts(l, c):
			return lossOf
		case is && c.Port && l.VLANs != nil: // they may have changed; a pod that flaps its link causes such messages, too
			return nearby
		}
		return noEffect
	case watch.Setting:
		return o.settingEffect(c)
	case watch.Neigh:
		i := slices.IndexFunc(
			o.Neighs,
			func(n state.Neigh) bool { return n.IP == c.Addr && (c.Link == "" || n.Link == c.Link) },
		)
		switch {
		case i < 0:
			return nearby
		case !c.Gone && state.MAC(c.MAC) == o.Neighs[i].MAC && !vm():
			return noEffect
		}
		return lossOf
	}
	if o.names(c) {
		return lossOf
	}
	return nearby
}

// names reports whether a change is about an object of the attachment: an address, a queueing discipline, a route or a
// policy routing rule.
func (o *objects) names(c watch.Change) bool {
	switch c.Kind {
	case watch.Addr:
		return slices.ContainsFunc(o.Addrs, func(a state.Addr) bool {
			return a.Link == c.Link && a.Prefix.Addr() == c.Addr && !a.Absent
		})
	case watch.Queue:
		return slices.ContainsFunc(
			o.Qdiscs,
			func(q state.Qdisc) bool { return q.Link == c.Link && string(q.Kind) == c.Qdisc },
		) ||
			slices.ContainsFunc(o.Joins, func(j state.Join) bool { return j.Link == c.Link || j.Tap == c.Link })
	case watch.Route:
		return slices.ContainsFunc(o.Routes, func(r state.Route) bool {
			return r.Dst.Masked() == c.Dst && sameTable(r.Table, c.Table) && sameMetric(r, c.Metric) && !r.Absent
		})
	case watch.Rule:
		return slices.ContainsFunc(o.Rules, func(r state.Rule) bool {
			return r.Priority == c.Metric && r.From == c.From && r.To == c.Dst && sameTable(r.Table, c.Table)
		})
	}
	return false
}

// sameTable reports whether two numbers mean the same routing table; 0 is the main one.
func sameTable(a, b uint32) bool {
	const main = 254 // RT_TABLE_MAIN
	return a == b || max(a, b) == main && min(a, b) == 0
}

// sameMetric reports whether a route has the metric, which the kernel chooses for IPv6 if the plan does not.
func sameMetric(r state.Route, metric uint32) bool {
	const byDefault = 1024 // IP6_RT_PRIO_USER
	return r.Metric == metric || r.Metric == 0 && r.Dst.Addr().Is6() && metric == byDefault
}

// settingEffect is effect for a setting of a link, which a change of all links' setting is reported as, too.
func (o *objects) settingEffect(c watch.Change) changeEffect {
	names := []string{c.Sysctl}
	switch c.Sysctl {
	case "net/ipv4/conf/" + c.Link + "/forwarding":
		names = append(names, "net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding")
	case "net/ipv6/conf/" + c.Link + "/forwarding":
		names = append(names, "net/ipv6/conf/all/forwarding")
	}
	for _, s := range o.Sysctls {
		if slices.Contains(names, s.Name) {
			if s.Value == strconv.Itoa(c.Value) {
				return noEffect
			}
			return lossOf
		}
	}
	return nearby
}

// linkDrifts reports whether a link message differs from the plan.
func linkDrifts(want state.Link, c watch.Change) bool {
	return c.Gone || c.Down && want.Up != nil && *want.Up || c.Freed && want.Master != "" ||
		want.Port != nil && (otherFlag(want.Port.Hairpin, c.Hairpin) || otherFlag(want.Port.Isolated, c.Isolated)) ||
		want.MTU != 0 && c.MTU != 0 && c.MTU != want.MTU ||
		!want.MAC.IsZero() && c.MAC != [6]byte{} && state.MAC(c.MAC) != want.MAC
}

// otherFlag reports whether a message has another value of a flag than the plan.
func otherFlag(want, have *bool) bool { return want != nil && have != nil && *want != *have }
