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

// markOrphans marks the blocks of dead nodes as orphaned: nodes with a block affinity whose Node object has been
// missing for NodeGoneAfter. Other nodes may reclaim such blocks. It removes the mark if the node is back. An
// unreachable node is no reason: its pods may be alive.
func (c *Controller) markOrphans(ctx context.Context) error {
	now := c.cfg.Now()
	if !c.nodesListed.IsZero() && now.Sub(c.nodesListed) < c.cfg.NodeGoneAfter/5 { // the list of all nodes is long
		return nil
	}
	nodes := map[string]bool{}
	if err := store.Each(ctx, c.cfg.Objects, store.Nodes(), func(o store.Object) {
		nodes[o.Key.Name] = true
	}); err != nil {
		return fmt.Errorf("list of nodes: %w", err)
	}
	c.nodesListed = now
	if !nodes[c.cfg.Node] {
		clear(c.absentSince)
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
			continue // the audit reports it
		}
		owners[b.Node] = true
		since, absent := c.absentSince[b.Node]
		switch {
		case nodes[b.Node]:
			delete(c.absentSince, b.Node)
		case !absent:
			c.absentSince[b.Node] = now
		}
		gone := !nodes[b.Node] && absent && now.Sub(since) >= c.cfg.NodeGoneAfter
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
			c.cfg.Log.Warn("block of a deleted node is orphaned: other nodes may reclaim it", "pool", b.Pool, "block", b.CIDR.String(),
				"node", b.Node)
		case err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound):
			errs = append(errs, fmt.Errorf("%s: %w", o.Key, err))
		}
	}
	maps.DeleteFunc(c.absentSince, func(node string, _ time.Time) bool { return !owners[node] })
	return errors.Join(errs...)
}
