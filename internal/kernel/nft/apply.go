// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// Apply makes the kernel's tables equal to the given ones, in one transaction. It writes nothing when nothing differs.
// Of a shared table it ensures the sets, chains and rules and adds the named elements; everything else in it stays.
func (c *Conn) Apply(ctx context.Context, tables []state.Table) error {
	if len(tables) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if slices.ContainsFunc(tables, func(t state.Table) bool { return t.Volatile || len(t.Flowtables) > 0 }) {
		return errors.New("nftables: tables that are volatile or have flowtables are replaced, not compared")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if done, err := c.addOnly(tables); done || err != nil {
		return err
	}
	ws, err := compile(tables)
	if err != nil {
		return err
	}
	placed := false
	return retryStale(ctx, func() (bool, error) { return c.reconcile(ws, &placed) })
}

// addOnly handles the usual ADD: all tables are shared, and the ruleset has not changed since they were last read, so
// their elements are added without reading. The kernel ignores an element that exists already, unless it may be another
// owner's (state.Set.Owned): then reconcile reads it.
func (c *Conn) addOnly(tables []state.Table) (done bool, err error) {
	if c.known.gen == 0 {
		return false, nil
	}
	b := c.wire.begin(c.known.gen)
	for _, in := range lang.JoinTables(tables) {
		t := c.known.seen[in.Family+" "+in.Name]
		if !in.Shared || t == nil || !t.covers(in) {
			return false, nil
		}
		for _, st := range in.Sets {
			if !t.unreadable(st) {
				return false, nil
			}
			s, _ := t.Set(st.Name)
			s.Elements, s.Owned = nil, st.Owned
			for _, e := range st.Elements {
				el, err := s.CompileElement(e)
				if err != nil {
					return false, fmt.Errorf("table %s: set %s: %w", t.Label(), st.Name, err)
				}
				s.Elements = append(s.Elements, el)
			}
			b.putElements(unix.NFT_MSG_NEWSETELEM, t, s, s.Elements, len(s.Elements))
		}
	}
	if b.empty() {
		return true, nil
	}
	gen, refused, err := c.wire.commit(b)
	if err != nil || len(refused) > 0 {
		return false, nil // whatever the reason, reconcile will determine and report it
	}
	c.known.advance(gen)
	for _, in := range tables {
		if t := c.known.seen[in.Family+" "+in.Name]; t.full != nil {
			t.fill(in)
		}
	}
	return true, nil
}

// reconcile reads, plans the difference and commits it. It sets placed when everything was written: then it only
// remains to check whether another process wrote a conflicting element meanwhile.
func (c *Conn) reconcile(ws []*table, placed *bool) (stale bool, err error) {
	gen, err := c.wire.generation()
	if err != nil {
		return false, err
	}
	if gen != c.known.gen {
		c.known.clear()
	}
	deltas := make([]*delta, len(ws))
	guard := uint32(0)
	for i, w := range ws {
		deltas[i] = newDelta()
		have, err := c.readCompared(w, deltas[i])
		if err != nil {
			return false, err
		}
		if err := c.reader.refused(w, have); err != nil {
			return false, err
		}
		switch {
		case have != nil:
			w.full = have.full
		case w.contested():
			w.full = w.fullOf()
		}
		deltas[i].compareTables(w, have)
		if deltas[i].rebuilds() {
			c.known.clear() // rules of other owners were deleted with the sets that they use
		}
		if !deltas[i].addsOnly() {
			guard = gen
		}
	}
	b := c.wire.begin(guard)
	for i, w := range ws {
		b.difference(w, deltas[i])
	}
	if *placed && b.empty() && slices.ContainsFunc(ws, (*table).contested) {
		c.known.clear()
		return false, nil
	}
	*placed = true
	return c.finish(b, ws, gen, guard)
}

// readCompared reads a table and compares the elements of each set before it reads the next one, unless the table is shared:
// then they are needed later.
func (c *Conn) readCompared(w *table, d *delta) (*table, error) {
	if w.Shared {
		return c.reader.readTable(w, nil)
	}
	return c.reader.readTable(w, func(have *lang.Set, want lang.Set) { d.compareRead(want, have) })
}

// finish commits the difference. Elements that are only added need no guard against concurrent changes: a hundred
// processes may add at once.
func (c *Conn) finish(b *batch, ws []*table, gen, guard uint32) (stale bool, err error) {
	var after uint32
	if b.empty() {
		// A read that spans a change would be inconsistent.
		after, err = c.wire.generation()
		stale = after != gen
	} else {
		after, stale, err = c.wire.change(b)
		// The table was deleted a moment ago, or another process added the same element.
		if guard == 0 &&
			(errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) && slices.ContainsFunc(ws, (*table).owns)) {
			err = errors.Join(netlink.ErrInterrupted, err)
		}
	}
	if err != nil || stale {
		c.known.clear()
		return stale, err
	}
	if guard == 0 && after != gen && after != gen+1 {
		c.known.clear()
		return slices.ContainsFunc(ws, (*table).contested), nil
	}
	c.known.gen = after
	c.known.store(ws)
	return false, nil
}

// difference writes a delta. The kernel requires that users are deleted before the objects that they use, and added
// after them.
func (b *batch) difference(want *table, d *delta) {
	if d.makeTable {
		b.putTable(want)
		for _, f := range want.Flowtables {
			b.putFlowtable(want, f)
		}
	}
	for name, handles := range d.dropRules {
		for _, h := range handles {
			b.dropRule(want, name, h)
		}
	}
	for _, s := range want.Sets {
		b.putElements(unix.NFT_MSG_DELSETELEM, want, s, d.dropElems[s.Name], few)
	}
	for _, name := range d.dropSets {
		b.dropSet(want, name)
	}
	for _, name := range d.dropChains {
		b.dropChain(want, name)
	}
	for i, s := range want.Sets {
		if slices.Contains(d.makeSets, s.Name) {
			b.putSet(want, s, uint32(i+1))
		}
	}
	for _, ch := range want.Chains {
		if slices.Contains(d.makeChains, ch.Name) {
			b.putChain(want, ch)
		}
	}
	for _, s := range want.Sets {
		add := d.makeElems[s.Name]
		b.putElements(unix.NFT_MSG_NEWSETELEM, want, s, add, len(add))
	}
	for _, ch := range want.Chains {
		for _, r := range d.makeRules[ch.Name] {
			b.putRule(want, ch.Name, r.Rule, r.before)
		}
	}
}
