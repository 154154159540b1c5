// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// MergeResults adds the previous result of a list to a plugin's own. A plugin that creates an interface returns only
// that one.
func MergeResults(prev *model.Result, now model.Result) model.Result {
	if prev == nil {
		return now
	}
	var first model.Result
	for _, l := range prev.Interfaces {
		if interfaceIndex(now.Interfaces, l) < 0 {
			first.Interfaces = append(first.Interfaces, l)
		}
	}
	out := now
	if len(first.Interfaces) > 0 {
		out.Interfaces = slices.Concat(first.Interfaces, now.Interfaces)
		out.IPs = nil
		for _, ip := range now.IPs {
			if ip.Interface != nil {
				i := *ip.Interface + len(first.Interfaces)
				ip.Interface = &i
			}
			out.IPs = append(out.IPs, ip)
		}
	}
	for _, ip := range prev.IPs {
		if slices.ContainsFunc(now.IPs, func(o model.IP) bool { return o.Address == ip.Address }) {
			continue
		}
		if ip.Interface != nil {
			if i := *ip.Interface; i >= 0 && i < len(prev.Interfaces) {
				i = interfaceIndex(out.Interfaces, prev.Interfaces[i])
				ip.Interface = &i
			}
		}
		first.IPs = append(first.IPs, ip)
	}
	for _, r := range prev.Routes {
		if !slices.ContainsFunc(now.Routes, func(o model.Route) bool { return o.Dst == r.Dst && o.GW == r.GW }) {
			first.Routes = append(first.Routes, r)
		}
	}
	out.IPs, out.Routes = slices.Concat(first.IPs, out.IPs), slices.Concat(first.Routes, out.Routes)
	if out.DNS.IsZero() {
		out.DNS = prev.DNS
	}
	return out
}

// interfaceIndex returns the index of an interface in a list, or -1.
func interfaceIndex(list []model.Interface, l model.Interface) int {
	return slices.IndexFunc(list, func(o model.Interface) bool { return o.Name == l.Name && o.Sandbox == l.Sandbox })
}
