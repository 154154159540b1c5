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

// grantLasts is how long a node may use the grant of an address. It requests one right before it uses the address.
const grantLasts = time.Minute

// revokeUnusedGrants revokes grants that nodes have not used: the pods that they were for may be gone.
func (c *Controller) revokeUnusedGrants(ctx context.Context) error {
	c.mu.Lock()
	read := c.grantsPending
	c.mu.Unlock()
	if !read {
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
			unread = true // the audit reports it; its grants are checked once it is readable
			continue
		}
		var old []netip.Addr
		for a, to := range b.Granted {
			key := grantKey(o.Key.Name, a, to)
			there[key] = true
			since, seen := c.grantedSince[key]
			if !seen {
				c.grantedSince[key] = now
			} else if now.Sub(since) >= grantLasts {
				old = append(old, a)
			}
		}
		if len(old) > 0 {
			switch err := grants.Revoke(ctx, c.cfg.Objects, o, b, old); {
			case err == nil: // a new grant of one of them has the full time
				for _, a := range old {
					delete(c.grantedSince, grantKey(o.Key.Name, a, b.Granted[a]))
				}
			case !errors.Is(err, store.ErrConflict): // else the next pass retries
				errs = append(errs, err)
			}
		}
	}
	if !unread {
		maps.DeleteFunc(c.grantedSince, func(key string, _ time.Time) bool { return !there[key] })
	}
	c.mu.Lock()
	c.grantsPending = unread || len(there) > 0
	c.mu.Unlock()
	return errors.Join(errs...)
}

func grantKey(block string, a netip.Addr, to string) string {
	return block + " " + a.String() + " " + to
}
