// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"slices"
)

// withLink adds a link. A link without a kind that is already in the list is a plugin's change to a link that another
// plugin makes: the fields that it sets win.
func withLink(links []Link, l Link) []Link {
	i := slices.IndexFunc(links, func(o Link) bool { return o.Name == l.Name })
	if i < 0 || l.Kind != "" || l.MovedFrom != nil {
		return append(links, l)
	}
	links = slices.Clone(links)
	links[i] = links[i].with(l)
	return links
}

func (l Link) with(o Link) Link {
	set(&l.MAC, o.MAC)
	set(&l.MTU, o.MTU)
	set(&l.TxQLen, o.TxQLen)
	set(&l.Up, o.Up)
	set(&l.Master, o.Master)
	set(&l.Alias, o.Alias)
	set(&l.Promisc, o.Promisc)
	set(&l.AllMulti, o.AllMulti)
	set(&l.Bridge, o.Bridge)
	l.Port = l.Port.with(o.Port)
	return l
}

func (p *PortAttrs) with(o *PortAttrs) *PortAttrs {
	if p == nil || o == nil {
		return cmp.Or(p, o)
	}
	out := *p
	set(&out.Hairpin, o.Hairpin)
	set(&out.Learning, o.Learning)
	set(&out.Flood, o.Flood)
	set(&out.McastFlood, o.McastFlood)
	set(&out.BcastFlood, o.BcastFlood)
	set(&out.Isolated, o.Isolated)
	set(&out.NeighSupp, o.NeighSupp)
	return &out
}

func set[T comparable](to *T, from T) {
	var unset T
	if from != unset {
		*to = from
	}
}

// withRoute adds a route. An absent route (a plugin moves it to another table) removes the earlier route from the list.
func withRoute(routes []Route, r Route) []Route {
	if r.Absent {
		const main = 254 // RT_TABLE_MAIN
		routes = slices.DeleteFunc(slices.Clone(routes), func(o Route) bool {
			return !o.Absent && o.Dst == r.Dst && o.Gw == r.Gw && o.Link == r.Link && (o.Metric == 0 || o.Metric == r.Metric) &&
				(o.Table == r.Table || o.Table%main == 0 && r.Table%main == 0)
		})
	}
	return append(routes, r)
}

// withSysctl adds a setting; of two values of the same setting the later one wins.
func withSysctl(settings []Sysctl, s Sysctl) []Sysctl {
	i := slices.IndexFunc(settings, func(o Sysctl) bool { return o.Name == s.Name })
	if i < 0 {
		return append(settings, s)
	}
	settings = slices.Clone(settings)
	s.Shared = s.Shared || settings[i].Shared
	settings[i] = s
	return settings
}
