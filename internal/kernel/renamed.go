// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// A link whose origin is in the space that it goes to only gets another name. It is marked with its old one before, as
// one that moves is, so that it is known wherever an Apply or its undo was killed. The old name is free then, and the
// same fragment may give it to a link that stands in for the one that went.

// inPlace tells whether a link of a space only gets another name.
func (v *view) inPlace(l state.Link) bool { return l.From != nil && l.From.Space == v.name }

// renameLink gives a link its new name. It goes down for that: older kernels rename no link that is up, and its routes
// must go with its name.
func (v *view) renameLink(ctx context.Context, l state.Link) error {
	found, err := v.conn.reader.LinksByName(ctx, []string{l.From.Name})
	if err != nil {
		return err
	}
	have, ok := found[l.From.Name]
	if !ok || have.Dead() || v.standsIn(have) {
		return fmt.Errorf("link %s %w", l.From.Name, ErrMissing)
	}
	batch := []*rtnl.Message{link.Set(have.Index, have.Name, link.Change{Alias: l.From.Name})}
	err = v.conn.rtnl.Send(ctx, append(batch, link.Rename(have.Index, have.Name, l.Name)...))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", err, ErrExists)
	}
	delete(v.links.found, l.From.Name)
	return err
}

// standsIn tells whether a link is one that the space has made under a name that was another one's.
func (v *view) standsIn(have link.Found) bool {
	for _, l := range v.want.Links {
		if l.Name == have.Name && l.Kind != "" && l.Alias != "" && l.Alias == have.Alias {
			return true
		}
	}
	return false
}

// renameBack gives the links of a space that only got another name their old ones, when what stood in for them has
// gone.
func (v *view) renameBack(ctx context.Context) error {
	var errs []error
	for _, l := range v.want.Links {
		if v.conn == nil || !v.inPlace(l) {
			continue
		}
		now, err := v.conn.reader.LinksByName(ctx, []string{l.Name, l.From.Name})
		if err != nil {
			return in(v.name, err)
		}
		var batch []*rtnl.Message
		have, away := now[l.Name]
		if away = away && have.Alias == l.From.Name; away {
			batch = link.Rename(have.Index, l.Name, l.From.Name)
		} else if have = now[l.From.Name]; have.Alias != l.From.Name {
			continue
		}
		err = v.conn.rtnl.Send(ctx, append(batch, link.Unmark(have.Index, l.From.Name)))
		if errors.Is(err, unix.EEXIST) {
			err = fmt.Errorf("%w: rename the link %s: the name belongs to %s", err, l.From.Name, l.Name)
		}
		errs = append(errs, in(v.name, err))
	}
	return errors.Join(errs...)
}
