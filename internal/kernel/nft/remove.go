// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// maxDeletions is the maximum of elements deleted by one transaction.
const maxDeletions = 1000

// Remove deletes whole tables, and of shared ones the named elements. Missing objects are no error.
func (c *Conn) Remove(ctx context.Context, tables []state.Table) error {
	bare := slices.Clone(tables)
	for i := range bare {
		bare[i].Chains = nil // not needed
		if !bare[i].Shared {
			bare[i].Sets = nil
		}
		bare[i].Sets = slices.Clone(bare[i].Sets)
		for k, s := range bare[i].Sets {
			shared := func(e state.Element) bool { return e.Shared }
			bare[i].Sets[k].Elements = slices.DeleteFunc(slices.Clone(s.Elements), shared)
		}
	}
	ws, err := compile(bare)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.reader.own(ws); err != nil {
		return err
	}
	var steps []func(*batch)
	for _, w := range ws {
		if !w.Shared {
			steps = append(steps, func(b *batch) { b.dropTable(w) })
			delete(c.known.seen, w.Label())
			continue
		}
		for _, s := range w.Sets {
			for _, e := range s.Elements {
				steps = append(steps, func(b *batch) { b.putElements(unix.NFT_MSG_DELSETELEM, w, s, []lang.Element{e}, 1) })
			}
		}
	}
	for len(steps) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(steps), maxDeletions)
		if err := c.removeAll(steps[:n]); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// removeAll commits deletions, each of one message. When some are refused because the object is missing, the others are
// retried without them: the kernel reports all refusals at once.
func (c *Conn) removeAll(steps []func(*batch)) error {
	for range attempts {
		if len(steps) == 0 {
			return nil
		}
		b := c.wire.begin(0)
		for _, step := range steps {
			step(b)
		}
		gen, refused, err := c.wire.commit(b)
		if err != nil {
			return err
		}
		if len(refused) == 0 {
			c.known.followed(gen)
			return nil
		}
		missing := map[int]bool{}
		for _, r := range refused {
			if r.errno != unix.ENOENT {
				err = errors.Join(err, r)
			}
			missing[r.index-1] = true
		}
		if err != nil {
			return err
		}
		var left []func(*batch)
		for i, step := range steps {
			if !missing[i] {
				left = append(left, step)
			}
		}
		steps = left
	}
	return fmt.Errorf("things vanish during each of %d attempts to delete them", attempts)
}

// RemoveShared deletes those of the shared tables whose sets have no elements other than shared ones.
func (c *Conn) RemoveShared(ctx context.Context, tables []state.Table) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range lang.JoinTables(tables) {
		if !in.Shared {
			continue
		}
		family, err := lang.ParseFamily(in.Family)
		if err != nil {
			return fmt.Errorf("table %s: %w", in.Name, err)
		}
		t := newTable(family, in.Name, false)
		if err := retryStale(ctx, func() (bool, error) { return c.removeEmpty(t) }); err != nil {
			return fmt.Errorf("table %s: %w", t.Label(), err)
		}
	}
	return nil
}

func (c *Conn) removeEmpty(t *table) (stale bool, err error) {
	gen, err := c.wire.generation()
	if err != nil {
		return false, err
	}
	have, err := c.reader.readTable(t, nil)
	if err != nil || have == nil {
		return false, err
	}
	for _, s := range have.Sets {
		if slices.ContainsFunc(s.Elements, func(e lang.Element) bool { return e.Comment != state.SharedComment }) {
			return false, nil
		}
	}
	c.known.gen = 0
	delete(c.known.seen, t.Label())
	b := c.wire.begin(gen)
	b.dropTable(t)
	_, stale, err = c.wire.change(b)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return stale, err
}
