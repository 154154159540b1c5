// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/grants"
	"github.com/weft-net/weft/internal/model"
)

// hearAgain is when a watch that broke is begun again.
const hearAgain = 2 * time.Second

// hear notes that agents ask for something, until ctx ends.
func (c *Controller) hear(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := c.cfg.Objects.Watch(ctx, store.AddressPoolRequests())
		if err == nil {
			for ev := range events {
				if ev.Type == store.Deleted || ev.Type == store.Synced || ev.Type == store.Faulty {
					continue
				}
				c.asked.Notify()
			}
		}
		select {
		case <-ctx.Done():
		case <-c.cfg.After(hearAgain):
		}
	}
}

// requests grants what agents ask for about pools, and reports whether one of them gives addresses of the cluster's
// network, by which Calico's pools are to be followed: such a request stays.
func (c *Controller) requests(ctx context.Context) (follow bool, err error) {
	all, err := list(ctx, c.cfg.Objects, store.AddressPoolRequests())
	if err != nil {
		return false, err
	}
	var errs []error
	for _, o := range all {
		r, err := o.AddressPoolRequest()
		switch {
		case err != nil:
		case r.Addr.IsValid():
			err = grants.Address(ctx, c.cfg.Objects, r)
			c.mu.Lock()
			c.granting = true
			c.mu.Unlock()
		case r.Claim != "":
			err = grants.FreeClaim(ctx, c.cfg.Objects, r.Claim)
		case r.Pool == "":
			follow = true
			continue
		default:
			err = grants.Pool(ctx, c.cfg.Objects, r)
		}
		var f *model.Fault
		if err != nil && (!errors.As(err, &f) || f.Code == model.CodeTryAgain) {
			errs = append(errs, fmt.Errorf("request of node %s: %w", r.Node, err))
			continue
		}
		if err != nil {
			c.cfg.Log.Warn("request of a node is refused", "node", r.Node, "pool", r.Pool, "claim", r.Claim,
				"pod", r.Pod, "err", err)
		} else {
			c.cfg.Log.Info("request of a node is granted", "node", r.Node, "pool", r.Pool, "range", r.CIDR.String(),
				"claim", r.Claim, "pod", r.Pod)
		}
		err = c.cfg.Objects.Delete(ctx, store.AddressPoolRequests(), o.Key, o.Version)
		if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
			errs = append(errs, fmt.Errorf("%s: %w", o.Key, err))
		}
	}
	return follow, errors.Join(errs...)
}

// makePools makes the pools that the configuration names and that are not there.
func (c *Controller) makePools(ctx context.Context) error {
	if len(c.cfg.Pools) == 0 {
		return nil
	}
	all, err := list(ctx, c.cfg.Objects, store.AddressPools())
	if err != nil {
		return err
	}
	var have []model.AddressPool
	for _, o := range all {
		p, err := o.AddressPool()
		if err != nil {
			p = model.AddressPool{Name: o.Key.Name}
		}
		have = append(have, p)
	}
	made, err := MakePools(ctx, c.cfg.Objects, c.cfg.Pools, have)
	for _, p := range made {
		c.cfg.Log.Info("pool made", "pool", p.Name)
	}
	return err
}

// MakePools makes those of the pools that are wanted and not there, and gives those that it made. What is there stays
// as people have changed it, and no pool is made that has addresses of another one of the cluster's network.
func MakePools(
	ctx context.Context, objects store.Objects, want, have []model.AddressPool,
) (made []model.AddressPool, err error) {
	var errs []error
	for _, p := range want {
		there, inTheWay := FindPool(have, p)
		if inTheWay != "" {
			errs = append(errs,
				fmt.Errorf("pool %s is not made: the pool %s has addresses of %s", p.Name, inTheWay, p.Regions[0].CIDR))
		}
		if there || inTheWay != "" {
			continue
		}
		o, err := store.AddressPoolObject(store.Object{}, p)
		if err == nil {
			_, err = objects.Create(ctx, store.AddressPools(), o)
		}
		switch {
		case err == nil:
			made = append(made, p)
		case !errors.Is(err, store.ErrExists): // another one was faster, most often
			errs = append(errs, fmt.Errorf("pool %s: %w", p.Name, err))
		}
	}
	return made, errors.Join(errs...)
}

// FindPool reports whether a pool is there, and which other one has addresses of it.
func FindPool(have []model.AddressPool, want model.AddressPool) (there bool, inTheWay string) {
	for _, o := range have {
		switch {
		case o.Name == want.Name:
			return true, ""
		case overlap(o, want):
			inTheWay = o.Name
		}
	}
	return false, inTheWay
}

// overlap reports whether two pools of the cluster's network have addresses in common.
func overlap(a, b model.AddressPool) bool {
	return a.OfCluster() && b.OfCluster() && slices.ContainsFunc(a.Regions, func(r model.AddressRegion) bool {
		return slices.ContainsFunc(b.Regions, func(o model.AddressRegion) bool { return r.CIDR.Overlaps(o.CIDR) })
	})
}
