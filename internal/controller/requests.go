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

// watchRetry is the delay before a broken watch is restarted.
const watchRetry = 2 * time.Second

// watchRequests watches for requests of agents until ctx ends.
func (c *Controller) watchRequests(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := c.cfg.Objects.Watch(ctx, store.AddressPoolRequests())
		if err == nil {
			for ev := range events {
				if ev.Type == store.Deleted || ev.Type == store.Synced || ev.Type == store.Faulty {
					continue
				}
				c.requested.Notify()
			}
		}
		select {
		case <-ctx.Done():
		case <-c.cfg.After(watchRetry):
		}
	}
}

// grantRequests grants requests of agents about pools. follow reports whether an agent allocates addresses of the
// cluster's network, so that Calico's pools are mirrored; that request is kept.
func (c *Controller) grantRequests(ctx context.Context) (follow bool, err error) {
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
			c.grantsPending = true
			c.mu.Unlock()
		case r.Claim != "":
			err = grants.FreeClaim(ctx, c.cfg.Objects, r.Claim)
		case r.Pool == "":
			follow = true
			continue
		default:
			err = grants.Pool(ctx, c.cfg.Objects, r)
		}
		var f *model.Error
		if err != nil && (!errors.As(err, &f) || f.Code == model.CodeTryAgain) {
			errs = append(errs, fmt.Errorf("request of node %s: %w", r.Node, err))
			continue
		}
		if err != nil {
			c.cfg.Log.Warn("node's request was refused", "node", r.Node, "pool", r.Pool, "claim", r.Claim,
				"pod", r.Pod, "err", err)
		} else {
			c.cfg.Log.Info("node's request was granted", "node", r.Node, "pool", r.Pool, "range", r.CIDR.String(),
				"claim", r.Claim, "pod", r.Pod)
		}
		err = c.cfg.Objects.Delete(ctx, store.AddressPoolRequests(), o.Key, o.Version)
		if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
			errs = append(errs, fmt.Errorf("%s: %w", o.Key, err))
		}
	}
	return follow, errors.Join(errs...)
}

// createPools creates missing pools of the configuration.
func (c *Controller) createPools(ctx context.Context) error {
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
	made, err := CreatePools(ctx, c.cfg.Objects, c.cfg.Pools, have)
	for _, p := range made {
		c.cfg.Log.Info("pool was created", "pool", p.Name)
	}
	return err
}

// CreatePools creates the wanted pools that are missing, and returns them. Existing pools keep the changes that
// operators have made, and a pool that overlaps another one of the cluster's network is not created.
func CreatePools(
	ctx context.Context, objects store.Objects, want, have []model.AddressPool,
) (made []model.AddressPool, err error) {
	var errs []error
	for _, p := range want {
		there, overlapping := FindPool(have, p)
		if overlapping != "" {
			errs = append(errs,
				fmt.Errorf("pool %s is not created: pool %s overlaps %s", p.Name, overlapping, p.Regions[0].CIDR))
		}
		if there || overlapping != "" {
			continue
		}
		o, err := store.AddressPoolObject(store.Object{}, p)
		if err == nil {
			_, err = objects.Create(ctx, store.AddressPools(), o)
		}
		switch {
		case err == nil:
			made = append(made, p)
		case !errors.Is(err, store.ErrExists): // created meanwhile by another agent
			errs = append(errs, fmt.Errorf("pool %s: %w", p.Name, err))
		}
	}
	return made, errors.Join(errs...)
}

// FindPool reports whether a pool exists, and returns another one that overlaps it.
func FindPool(have []model.AddressPool, want model.AddressPool) (there bool, overlapping string) {
	for _, o := range have {
		switch {
		case o.Name == want.Name:
			return true, ""
		case overlap(o, want):
			overlapping = o.Name
		}
	}
	return false, overlapping
}

// overlap reports whether two pools of the cluster's network have addresses in common.
func overlap(a, b model.AddressPool) bool {
	return a.IsClusterPool() && b.IsClusterPool() && slices.ContainsFunc(a.Regions, func(r model.AddressRegion) bool {
		return slices.ContainsFunc(b.Regions, func(o model.AddressRegion) bool { return r.CIDR.Overlaps(o.CIDR) })
	})
}
