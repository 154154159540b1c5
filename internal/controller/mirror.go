// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// From is the annotation of an AddressPool that mirrors another object: its group and kind. Without the annotation the
// pool is independent.
const From = "weft.dev/from"

// calicoState is the content of Calico's objects.
type calicoState struct {
	pools        []model.AddressPool // by age
	kinds        map[string]string   // value of the annotation From, by pool
	unreadPools  map[string]bool     // invalid pools
	unreadConfig bool                // a configuration is invalid: the pools keep their settings
	excluded     []model.ExcludedRange
	unread       map[string]bool // invalid reservations
	problems     []error
}

// readCalico reads Calico's objects. Objects of one name in both API groups are the same.
func readCalico(ctx context.Context, objects store.Objects) (calicoState, error) {
	c := calicoState{kinds: map[string]string{}, unreadPools: map[string]bool{}, unread: map[string]bool{}}
	var conf calico.Configuration
	reserved := map[string]bool{}
	for _, g := range calico.Groups() {
		pools, err := list(ctx, objects, g.Pools)
		if err != nil {
			return c, err
		}
		for _, o := range pools {
			c.pool(o)
		}
		if len(pools) == 0 {
			continue // without pools there is nothing to reserve or to configure
		}
		reservations, err := list(ctx, objects, g.Reservations)
		if err != nil {
			return c, err
		}
		for _, o := range reservations {
			if !reserved[o.Key.Name] {
				reserved[o.Key.Name] = true
				c.reservation(o)
			}
		}
		configurations, err := list(ctx, objects, g.Configurations)
		if err != nil {
			return c, err
		}
		for _, o := range configurations {
			is, _, err := calico.Configure(o)
			if err != nil {
				c.problems = append(c.problems, err)
				c.unreadConfig = true
				continue
			}
			conf.MaxBlocks, conf.Cooldown = cmp.Or(conf.MaxBlocks, max(is.MaxBlocks, 0)),
				cmp.Or(conf.Cooldown, max(is.Cooldown, 0))
		}
	}
	for i := range c.pools {
		c.pools[i].MaxBlocks, c.pools[i].Cooldown = conf.MaxBlocks, conf.Cooldown
	}
	slices.SortFunc(c.pools, func(a, b model.AddressPool) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	return c, nil
}

func (c *calicoState) pool(o store.Object) {
	if c.kinds[o.Key.Name] != "" || c.unreadPools[o.Key.Name] {
		return
	}
	p, _, err := calico.Pool(o)
	if err != nil {
		c.problems = append(c.problems, err)
		c.unreadPools[o.Key.Name] = true
		return
	}
	c.pools = append(c.pools, p)
	c.kinds[p.Name] = o.Key.Group + "/" + o.Key.Kind
}

func (c *calicoState) reservation(o store.Object) {
	ranges, err := calico.Reservation(o)
	if err != nil {
		c.problems = append(c.problems, err)
		c.unread[o.Key.String()] = true
		return
	}
	c.excluded = append(c.excluded, ranges...)
}

// mirror creates and updates AddressPools from Calico's pools, the oldest first, and deletes those whose pool is gone.
// If all of Calico's pools are gone, Calico was removed, or its CRDs are missing for a moment: then the pools are kept.
func (s *poolState) mirror(ctx context.Context, c calicoState) {
	fresh := false
	for _, p := range c.pools {
		o, there := s.pools[p.Name]
		switch {
		case !there:
			fresh = fresh || !p.Deleted
		case annotation(o, From) != "":
			if is, ok := s.specs[p.Name]; ok && c.unreadConfig {
				p.MaxBlocks, p.Cooldown = is.MaxBlocks, is.Cooldown
			}
			s.follow(ctx, o, p)
		}
	}
	if fresh {
		s.createMirrored(ctx, c)
	}
	if len(c.kinds)+len(c.unreadPools) == 0 {
		return
	}
	for _, name := range s.names() {
		o := s.pools[name]
		if annotation(o, From) == "" || c.kinds[name] != "" || c.unreadPools[name] || s.specs[name].Deleted {
			continue
		}
		if s.blockCount(name) > 0 {
			s.disable(ctx, name)
			continue
		}
		if err := s.objects.Delete(ctx, store.AddressPools(), o.Key, o.Version); err != nil &&
			!errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			s.problems = append(s.problems, fmt.Errorf("pool %s: %w", name, err))
			continue
		}
		delete(s.pools, name)
		delete(s.specs, name)
	}
}

// follow updates a mirror. Its regions and block sizes are kept, because nodes have its blocks.
func (s *poolState) follow(ctx context.Context, o store.Object, p model.AddressPool) {
	is, ok := s.specs[p.Name]
	if !ok {
		is = model.AddressPool{Name: p.Name}
	}
	p.Reserved, p.Excluded, p.ExhaustedOn = is.Reserved, is.Excluded, is.ExhaustedOn
	if len(is.Regions) > 0 {
		p.Regions = is.Regions
	}
	p.Disabled = p.Disabled || p.Deleted
	next, err := store.AddressPoolObject(o, p)
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	s.write(ctx, next)
}

func (s *poolState) disable(ctx context.Context, name string) {
	spec, ok := s.specs[name]
	if !ok || spec.Disabled {
		return
	}
	spec.Disabled = true
	next, err := store.AddressPoolObject(s.pools[name], spec)
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	s.write(ctx, next)
}
