// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// routes decides the default routes of each network. If a pod requests a gateway, only the gateway's network has the
// default route of that family; with an empty list of gateways the network keeps those of both families. Otherwise only
// those of the pod's first network stay.
func routes(all []source) {
	taken := map[string]int{} // by family, the network that has the default route
	for i, src := range all {
		if src.selection == nil || src.selection.DefaultRoute == nil {
			continue
		}
		if len(src.selection.DefaultRoute) == 0 {
			taken["4"], taken["6"] = i, i
		}
		for _, gw := range src.selection.DefaultRoute {
			taken[familyOf(gw.Unmap().Is4())] = i
		}
	}
	for i := range all {
		if !all[i].bare {
			all[i].routes = all[i].defaultRoute(i, taken)
		}
	}
}

func familyOf(is4 bool) string {
	if is4 {
		return "4"
	}
	return "6"
}

// defaultRoute returns nil if there is nothing to decide.
func (src source) defaultRoute(i int, taken map[string]int) *plugin.DefaultRouteConf {
	var c plugin.DefaultRouteConf
	for _, family := range []string{"4", "6"} {
		if owner, ok := taken[family]; ok && owner != i {
			c.Drop = append(c.Drop, family)
		}
	}
	if s := src.selection; s != nil && len(s.DefaultRoute) > 0 {
		c.Via = s.DefaultRoute
		for _, gw := range s.DefaultRoute {
			if family := familyOf(gw.Unmap().Is4()); !slices.Contains(c.Drop, family) {
				c.Drop = append(c.Drop, family)
			}
		}
	}
	c.Yield = i > 0
	if len(c.Drop)+len(c.Via) == 0 && !c.Yield {
		return nil
	}
	return &c
}

// mayRoute reports whether a network may create a default route: most additional networks do not, and cost nothing
// then. A foreign plugin may.
func mayRoute(n model.Network, planners map[string]plugin.Planner) bool {
	for _, p := range n.Plugins {
		planner := planners[p.Type]
		if planner == nil {
			return true
		}
		for _, word := range []string{`/0"`, `efaultGateway`} {
			if bytes.Contains(p.Raw, []byte(word)) {
				return true
			}
		}
		ipam, err := planner.IPAM(p)
		if err != nil || len(ipam) == 0 {
			continue // the validation reports errors
		}
		if typ, _ := wire.Field(ipam, "type"); !slices.Contains([]string{
			"host-local", "static", "whereabouts", "weft", "calico-ipam",
		}, typ) {
			return true
		}
	}
	return false
}

// withRoutes appends the decision to a network's plugins.
func withRoutes(n *model.Network, decided *plugin.DefaultRouteConf) error {
	if decided == nil {
		return nil
	}
	c := *decided
	c.Yield = c.Yield && mayRoute(*n, plugin.InAgent())
	if len(c.Drop)+len(c.Via) == 0 && !c.Yield {
		return nil
	}
	raw, err := json.Marshal(struct {
		Name       string `json:"name"`
		CNIVersion string `json:"cniVersion"`
		Type       string `json:"type"`
		*plugin.DefaultRouteConf
	}{n.Name, n.CNIVersion, plugin.DefaultRouteType, &c})
	if err != nil {
		return fmt.Errorf("network %s: %w", n.Name, err)
	}
	n.Plugins = append(n.Plugins, model.PluginConf{Type: plugin.DefaultRouteType, Raw: raw})
	return nil
}
