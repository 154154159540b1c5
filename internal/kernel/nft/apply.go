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

// Apply makes the kernel hold the tables, in one transaction. Nothing is written when nothing differs. Of a shared
// table the sets, chains and rules are made sure of and the elements that are named are added; everything else in it
// stays.
func (c *Conn) Apply(ctx context.Context, tables []state.Table) error {
	if len(tables) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
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
	return settled(ctx, func() (bool, error) { return c.reconcile(ws, &placed) })
}

// addOnly is the usual case of an ADD: only shared tables are named, nobody has touched the ruleset since they were
// last looked at, and so their elements are added unread. An element that is there already is no change to the kernel,
// unless it could be another owner's (state.Set.Owned): then it is looked at.
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
			if !t.alone(st) {
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
		return false, nil // whatever it was, the long way finds it out and says it
	}
	c.known.advance(gen)
	for _, in := range tables {
		if t := c.known.seen[in.Family+" "+in.Name]; t.full != nil {
			t.fill(in)
		}
	}
	return true, nil
}

// reconcile reads, plans the difference and commits it. It notes when it has placed everything: then all that is left
// to do is to look whether somebody else has taken the same meanwhile.
func (c *Conn) reconcile(ws []*table, placed *bool) (stale bool, err error) {
	gen, err := c.wire.generation()
	if err != nil {
		return false, err
	}
	if gen != c.known.gen {
		c.known.forget()
	}
	deltas := make([]*delta, len(ws))
	guard := uint32(0)
	for i, w := range ws {
		have, err := c.reader.readTable(w)
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
		deltas[i] = compareTables(w, have)
		if deltas[i].rebuilds() {
			c.known.forget() // rules of others went with what they used
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
		c.known.forget()
		return false, nil
	}
	*placed = true
	return c.finish(b, ws, gen, guard)
}

// finish commits what reconcile found. Elements that are only added need no guard against changes by others: a hundred
// processes may do it at once.
func (c *Conn) finish(b *batch, ws []*table, gen, guard uint32) (stale bool, err error) {
	var after uint32
	if b.empty() {
		// A reading that spans a change would be no reading.
		after, err = c.wire.generation()
		stale = after != gen
	} else {
		after, stale, err = c.wire.change(b)
		// The table went a moment ago, or somebody else added the same.
		if guard == 0 &&
			(errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) && slices.ContainsFunc(ws, (*table).owns)) {
			err = errors.Join(netlink.ErrInterrupted, err)
		}
	}
	if err != nil || stale {
		c.known.forget()
		return stale, err
	}
	if guard == 0 && after != gen && after != gen+1 {
		c.known.forget()
		return slices.ContainsFunc(ws, (*table).contested), nil
	}
	c.known.gen = after
	c.known.remember(ws)
	return false, nil
}

// difference writes a delta. The kernel wants users gone before what they use, and what is used made before its users.
func (b *batch) difference(want *table, d *delta) {
	if d.makeTable {
		b.putTable(want)
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
