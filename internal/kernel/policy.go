// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/state"
)

// ErrUnfit is wrapped by the error about a change of a table that is not as its sender took it for.
var ErrUnfit = errors.New("everything must be written")

// Count is what the counters of rules with one comment say.
type Count = nft.Count

// Change changes tables that weft owns whole, in one transaction, and reads nothing.
func (c *Conn) Change(ctx context.Context, changes []state.TableChange) error {
	n, err := c.tables()
	if err != nil {
		return err
	}
	if err = n.Change(ctx, changes); errors.Is(err, nft.ErrUnfit) {
		return fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	return err
}

// Counts reads the counters of a table's rules that have a comment.
func (c *Conn) Counts(ctx context.Context, family, table string) ([]Count, error) {
	n, err := c.tables()
	if err != nil {
		return nil, err
	}
	return n.Counts(ctx, family, table)
}

// Cut forgets the tracked connections that are chosen, and gives them.
func (c *Conn) Cut(choose func(state.Connection) bool) ([]state.Connection, error) {
	return c.tracked.Cut(c.ns, choose)
}

// Find gives those tracked connections of parties that are chosen, Forget has them be forgotten.
func (c *Conn) Find(parties []state.Party, choose func(state.Connection) bool) ([]Found, error) {
	return c.tracked.Find(c.ns, parties, choose)
}

// Forget has the kernel forget connections that were found.
func (c *Conn) Forget(all []Found) error { return c.tracked.Forget(c.ns, all) }

// Found is a tracked connection that was looked for.
type Found = effect.Found

// Tracked gives the connections of TCP and UDP that are chosen.
func (c *Conn) Tracked(choose func(state.Connection) bool) ([]state.Tracked, error) {
	return c.tracked.List(c.ns, choose)
}

// Track has connections tracked that another kernel has tracked. Of those that are known the time is lengthened, if longer.
func (c *Conn) Track(all []state.Tracked, longer bool) error {
	return c.tracked.Track(c.ns, all, longer)
}

// Loosen has all packets of connections count, also those outside of the window that was seen.
func (c *Conn) Loosen(all []state.Tracked) error { return c.tracked.Loosen(c.ns, all) }

// Port is what the kernel names as the origin of our changes of nft.
func (c *Conn) Port() (uint32, error) {
	n, err := c.tables()
	if err != nil {
		return 0, err
	}
	return n.Port()
}

// ApplyTables makes tables as they should be, whatever they are.
func (c *Conn) ApplyTables(ctx context.Context, tables []state.Table) error {
	n, err := c.tables()
	if err != nil {
		return err
	}
	return n.Apply(ctx, tables)
}

// RemoveTables deletes tables that weft owns whole. A missing one is no error.
func (c *Conn) RemoveTables(ctx context.Context, tables []state.Table) error {
	n, err := c.tables()
	if err != nil {
		return err
	}
	return n.Remove(ctx, tables)
}

// Learnt are the elements that rules have added to a set; none where it is not there.
func (c *Conn) Learnt(ctx context.Context, family, table string, head state.Set) ([]state.Element, error) {
	n, err := c.tables()
	if err != nil {
		return nil, err
	}
	return n.Learnt(ctx, family, table, head)
}

// Unlearn takes elements out of such sets. Missing ones are no error.
func (c *Conn) Unlearn(ctx context.Context, family, table string, sets ...state.Set) error {
	n, err := c.tables()
	if err != nil {
		return err
	}
	return n.Unlearn(ctx, family, table, sets...)
}
