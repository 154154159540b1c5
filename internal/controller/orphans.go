// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// orphans marks the blocks of nodes that have had no object for long enough, so that others may take them over, and
// takes the mark back where the node is there again. That a node does not answer is no reason: its pods may well be
// alive.
func (c *Controller) orphans(ctx context.Context) error {
	now := c.cfg.Now()
	if !c.looked.IsZero() && now.Sub(c.looked) < c.cfg.Gone/5 { // all nodes are a long list
		return nil
	}
	nodes := map[string]bool{}
	if err := store.Each(ctx, c.cfg.Objects, store.Nodes(), func(o store.Object) {
		nodes[o.Key.Name] = true
	}); err != nil {
		return fmt.Errorf("list of nodes: %w", err)
	}
	c.looked = now
	if !nodes[c.cfg.Node] {
		clear(c.absent)
		return nil
	}
	all, err := list(ctx, c.cfg.Objects, store.AddressBlocks())
	if err != nil {
		return err
	}
	var errs []error
	owners := map[string]bool{}
	for _, o := range all {
		b, err := o.AddressBlock()
		if err != nil {
			continue // the comparison finds it
		}
		owners[b.Node] = true
		since, absent := c.absent[b.Node]
		switch {
		case nodes[b.Node]:
			delete(c.absent, b.Node)
		case !absent:
			c.absent[b.Node] = now
		}
		gone := !nodes[b.Node] && absent && now.Sub(since) >= c.cfg.Gone
		if b.Orphaned == gone || b.Orphaned && !nodes[b.Node] {
			continue
		}
		b.Orphaned = gone
		next, err := store.AddressBlockObject(o, b)
		if err == nil {
			_, err = c.cfg.Objects.CompareAndSwap(ctx, store.AddressBlocks(), o.Version, next)
		}
		switch {
		case err == nil && gone:
			c.cfg.Log.Warn("block of a node that is gone: others may take it over", "pool", b.Pool, "block", b.CIDR.String(),
				"node", b.Node)
		case err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound):
			errs = append(errs, fmt.Errorf("%s: %w", o.Key, err))
		}
	}
	maps.DeleteFunc(c.absent, func(node string, _ time.Time) bool { return !owners[node] })
	return errors.Join(errs...)
}
