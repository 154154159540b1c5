// SPDX-License-Identifier: Apache-2.0

package hostendpoint

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// Automatic returns the host endpoints that Calico's controllers create for a node: one for all of its interfaces, and
// those of templates. Interfaces are the names of the node's interfaces, where they are known. What no policy decides is
// allowed at all of them.
func Automatic(c model.HostEndpointController, n model.Node, interfaces []string) (out []model.HostEndpoint) {
	if !c.Enabled {
		return nil
	}
	one := func(name string, more map[string]string, addrs []netip.Addr) model.HostEndpoint {
		h := model.HostEndpoint{Name: name, Node: n.Name, Addrs: addrs, Allows: true, Automatic: true, Labels: map[string]string{}}
		maps.Copy(h.Labels, n.Labels)
		maps.Copy(h.Labels, more)
		h.Labels[model.HostEndpointCreatorLabel] = model.HostEndpointCreator
		return h
	}
	if c.Default {
		h := one(n.Name+"-auto-hep", nil, n.Addrs)
		h.Interface = model.AllInterfaces
		out = append(out, h)
	}
	for _, t := range c.Templates {
		if !t.Nodes.MatchesView(model.Labels(n.Labels)) {
			continue
		}
		addrs := slices.DeleteFunc(slices.Clone(n.Addrs), func(a netip.Addr) bool {
			return len(t.Networks) > 0 && !slices.ContainsFunc(t.Networks, func(p netip.Prefix) bool { return p.Contains(a) })
		})
		name := n.Name + "-" + t.Name
		if t.Interfaces == "" {
			if len(addrs) > 0 {
				out = append(out, one(name+"-auto-hep", t.Labels, addrs))
			}
			continue
		}
		pattern, err := regexp.Compile(t.Interfaces)
		if err != nil {
			continue // the reader of the object reports it
		}
		for _, i := range interfaces {
			if pattern.MatchString(i) {
				h := one(name+"-"+i+"-auto-hep", t.Labels, addrs)
				h.Interface = i
				out = append(out, h)
			}
		}
	}
	return out
}
