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

// From is the annotation of an AddressPool that is made of another object, and follows it: the other's group and kind.
// Whoever takes it away has a pool of weft's own.
const From = "weft.dev/from"

// calicos is what Calico's objects say.
type calicos struct {
	pools    []model.AddressPool // by age
	from     map[string]string   // by pool: the value of the annotation
	unreadP  map[string]bool     // pools that are there and cannot be understood
	unreadC  bool                // so is a configuration: what pools have of it stays
	excluded []model.ExcludedRange
	unread   map[string]bool // reservations that cannot be understood
	problems []error
}

// lookCalico reads Calico's objects. Where both groups have objects of one name, they are the same.
func lookCalico(ctx context.Context, objects store.Objects) (calicos, error) {
	c := calicos{from: map[string]string{}, unreadP: map[string]bool{}, unread: map[string]bool{}}
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
			continue // who has no pools has nothing to reserve and to configure
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
				c.unreadC = true
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

func (c *calicos) pool(o store.Object) {
	if c.from[o.Key.Name] != "" || c.unreadP[o.Key.Name] {
		return
	}
	p, _, err := calico.Pool(o)
	if err != nil {
		c.problems = append(c.problems, err)
		c.unreadP[o.Key.Name] = true
		return
	}
	c.pools = append(c.pools, p)
	c.from[p.Name] = o.Key.Group + "/" + o.Key.Kind
}

func (c *calicos) reservation(o store.Object) {
	ranges, err := calico.Reservation(o)
	if err != nil {
		c.problems = append(c.problems, err)
		c.unread[o.Key.String()] = true
		return
	}
	c.excluded = append(c.excluded, ranges...)
}

// mirror makes AddressPools of Calico's pools, the oldest first, and lets those go whose pool is gone. Where all of
// Calico's pools are gone, Calico is, or its kinds for a moment: then the pools stay as they are.
func (s *scene) mirror(ctx context.Context, c calicos) {
	fresh := false
	for _, p := range c.pools {
		o, there := s.pools[p.Name]
		switch {
		case !there:
			fresh = fresh || !p.Deleted
		case annotation(o, From) != "":
			if is, ok := s.specs[p.Name]; ok && c.unreadC {
				p.MaxBlocks, p.Cooldown = is.MaxBlocks, is.Cooldown
			}
			s.follow(ctx, o, p)
		}
	}
	if fresh {
		s.create(ctx, c)
	}
	if len(c.from)+len(c.unreadP) == 0 {
		return
	}
	for _, name := range s.names() {
		o := s.pools[name]
		if annotation(o, From) == "" || c.from[name] != "" || c.unreadP[name] || s.specs[name].Deleted {
			continue
		}
		if s.held(name) > 0 {
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

// follow brings a mirror up to date. How it is cut stays: blocks of it are with nodes.
func (s *scene) follow(ctx context.Context, o store.Object, p model.AddressPool) {
	is, ok := s.specs[p.Name]
	if !ok {
		is = model.AddressPool{Name: p.Name}
	}
	p.Reserved, p.Excluded, p.Wanted = is.Reserved, is.Excluded, is.Wanted
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

func (s *scene) disable(ctx context.Context, name string) {
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
