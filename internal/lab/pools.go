// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/model"
)

// writePools creates a pool for each of the cluster's prefixes, unless the manifests have a pool that overlaps it.
func writePools(ctx context.Context, s *dir.Store, c model.Cluster, l layout.Layout) error {
	if !l.Spec.UsesPools() {
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
