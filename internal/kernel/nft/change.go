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

// ErrStale is wrapped by the error about a change that the kernel refused because the table is not what the caller
// assumed. Nothing was changed; Apply reconciles the table.
var ErrStale = errors.New("table is not as expected")

// change is a compiled state.TableChange.
type change struct {
	*table // what is added
	drop   []lang.Set
	add    []lang.Set
	given  state.TableChange
}

// Change writes the changes, in one transaction, and reads nothing.
func (c *Conn) Change(ctx context.Context, changes []state.TableChange) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	all := make([]change, 0, len(changes))
	for _, in := range changes {
		one, err := compileChange(in)
		if err != nil {
			return fmt.Errorf("table %s %s: %w", in.Family, in.Name, err)
		}
		all = append(all, one)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.wire.begin(0)
	id := uint32(0)
	for _, one := range all {
		id = b.change(one, id)
	}
	if b.empty() {
		return nil
	}
	gen, refused, err := c.wire.commit(b)
	for _, r := range refused {
		switch r.errno {
		case unix.ENOENT, unix.EEXIST, unix.EBUSY, unix.ENOTEMPTY:
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrStale, r))
		default:
			err = errors.Join(err, r)
		}
	}
	if err != nil {
		return err
	}
	c.known.followed(gen)
	return nil
}

func compileChange(in state.TableChange) (change, error) {
	one := change{given: in}
	t, err := lang.CompilePart(state.Table{Family: in.Family, Name: in.Name, Sets: in.AddSets, Chains: in.AddChains},
		true)
	if err != nil {
		return one, err
	}
	one.table = &table{Table: *t}
	for _, s := range in.AddElements {
		c, err := lang.CompileSet(s)
		if err != nil {
			return one, fmt.Errorf("set %s: %w", s.Name, err)
		}
		one.add = append(one.add, c)
	}
	for _, s := range in.DeleteElements {
		s.Data = "" // the value does not matter
		s.Elements = slices.Clone(s.Elements)
		for i := range s.Elements {
			s.Elements[i].Val = nil
		}
		c, err := lang.CompileSet(s)
		if err != nil {
			return one, fmt.Errorf("set %s: %w", s.Name, err)
		}
		one.drop = append(one.drop, c)
	}
	return one, nil
}

// change writes one change. Objects are added before their users, and deleted after them; id is the number of the last
// set added in this transaction.
func (b *batch) change(c change, id uint32) uint32 {
	for _, s := range c.Sets {
		id++
		b.putSet(c.table, s, id)
	}
	for _, ch := range c.Chains {
		b.putChain(c.table, ch)
	}
	for _, ch := range c.Chains {
		b.dropRule(c.table, ch.Name, 0)
		for _, r := range ch.Rules {
			b.putRule(c.table, ch.Name, r, 0)
		}
	}
	for _, s := range c.drop {
		b.putElements(unix.NFT_MSG_DELSETELEM, c.table, s, s.Elements, len(s.Elements))
	}
	for _, s := range slices.Concat(c.Sets, c.add) {
		b.putElements(unix.NFT_MSG_NEWSETELEM, c.table, s, s.Elements, len(s.Elements))
	}
	for _, name := range c.given.DeleteChains {
		b.dropRule(c.table, name, 0)
	}
	for _, name := range c.given.DeleteChains {
		b.dropChain(c.table, name)
	}
	for _, name := range c.given.DeleteSets {
		b.dropSet(c.table, name)
	}
	return id
}
