// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
)

// link returns the configuration of the plugin that attaches pods to a node, with its IPAM.
func (s Spec) link(n Node, dataDir string) map[string]any {
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
	if s.usesPools() {
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

// writePools creates a pool for each of the cluster's prefixes, unless the manifests have a pool that overlaps it.
func writePools(ctx context.Context, s *dir.Store, c model.Cluster, l Layout) error {
	if !l.Spec.usesPools() {
		return nil
	}
	var errs []error
	for i, cidr := range l.Spec.ClusterCIDRs {
		if overlapsPool(c.Pools, cidr) {
			continue
		}
		const size, size6 = 26, 122 // blocks of 64 addresses
		region := model.AddressRegion{CIDR: cidr, BlockSize: max(size, cidr.Bits())}
		if cidr.Addr().Is6() {
			region.BlockSize = max(size6, cidr.Bits())
		}
		o, err := store.AddressPoolObject(store.Object{}, model.AddressPool{
			Name: fmt.Sprintf("pods%d", i), AssignmentMode: model.AssignAutomatic, Regions: []model.AddressRegion{region},
		})
		if err == nil {
			_, err = s.Create(ctx, o)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// overlapsPool reports whether a prefix overlaps one of the pools.
func overlapsPool(pools []model.AddressPool, cidr netip.Prefix) bool {
	for _, p := range pools {
		for _, r := range p.Regions {
			if p.IsClusterPool() && r.CIDR.Overlaps(cidr) {
				return true
			}
		}
	}
	return false
}
