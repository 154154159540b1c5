// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/grants"
)

// grantLasts is for how long a node may use a grant of an address. It asks when it is about to take the address.
const grantLasts = time.Minute

// grants takes back what nodes were granted and have not used: the pods that it was for may have gone on.
func (c *Controller) grants(ctx context.Context) error {
	c.mu.Lock()
	look := c.granting
	c.mu.Unlock()
	if !look {
		return nil
	}
	all, err := list(ctx, c.cfg.Objects, store.AddressBlocks())
	if err != nil {
		return err
	}
	now := c.cfg.Now()
	var errs []error
	there, unread := map[string]bool{}, false
	for _, o := range all {
		b, err := o.AddressBlock()
		if err != nil {
			unread = true // the comparison finds it; what is granted there is looked at when it can be read
			continue
		}
		var old []netip.Addr
		for a, to := range b.Granted {
			key := grantKey(o.Key.Name, a, to)
			there[key] = true
			since, seen := c.granted[key]
			if !seen {
				c.granted[key] = now
			} else if now.Sub(since) >= grantLasts {
				old = append(old, a)
			}
		}
		if len(old) > 0 {
			switch err := grants.Revoke(ctx, c.cfg.Objects, o, b, old); {
			case err == nil: // who is granted one of them again has all the time for it
				for _, a := range old {
					delete(c.granted, grantKey(o.Key.Name, a, b.Granted[a]))
				}
			case !errors.Is(err, store.ErrConflict): // else the next look takes them
				errs = append(errs, err)
			}
		}
	}
	if !unread {
		maps.DeleteFunc(c.granted, func(key string, _ time.Time) bool { return !there[key] })
	}
	c.mu.Lock()
	c.granting = unread || len(there) > 0
	c.mu.Unlock()
	return errors.Join(errs...)
}

func grantKey(block string, a netip.Addr, to string) string {
	return block + " " + a.String() + " " + to
}
