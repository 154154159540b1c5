// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"strconv"
)

// Plugin returns the configuration of the plugin that attaches pods to a node, with its IPAM.
func (s Spec) Plugin(n Node, dataDir string) map[string]any {
	type object = map[string]any
	var ranges, routes []any
	for _, p := range n.PodCIDRs {
		ranges = append(ranges, []any{object{"subnet": p.String()}})
		all := "0.0.0.0/0"
		if p.Addr().Is6() {
			all = "::/0"
		}
		routes = append(routes, object{"dst": all})
	}
	ipam := object{"type": "host-local", "dataDir": dataDir, "ranges": ranges}
	if s.Design == "bridge" {
		ipam["routes"] = routes
		return object{"type": "bridge", "bridge": "weft0", "isGateway": true, "hairpinMode": true, "ipam": ipam}
	}
	if s.UsesPools() {
		ipam = object{"type": "calico-ipam"}
		for _, family := range []int{4, 6} {
			ipam[fmt.Sprintf("assign_ipv%d", family)] = strconv.FormatBool(s.hasFamily(family))
		}
	}
	return object{"type": "calico", "policy": object{"type": "k8s"}, "ipam": ipam}
}

// hasFamily reports whether the cluster has addresses of a family (4 or 6).
func (s Spec) hasFamily(family int) bool {
	for _, c := range s.ClusterCIDRs {
		if c.Addr().Is4() == (family == 4) {
			return true
		}
	}
	return false
}
