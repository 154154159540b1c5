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

// A link whose origin is in its own space is only renamed. Like a moved link it is marked with its old name first, so
// that it is recognized wherever an Apply or its undo was killed. The old name is free then, and the same fragment may
// use it for a substitute.

// inPlace reports whether a link of a space is only renamed.
func (v *view) inPlace(l state.Link) bool { return l.MovedFrom != nil && l.MovedFrom.Space == v.name }

// renameLink renames a link. It takes the link down for that: older kernels rename no link that is up, and its routes
// must be removed with its name.
func (v *view) renameLink(ctx context.Context, l state.Link) error {
	found, err := v.conn.reader.LinksByName(ctx, []string{l.MovedFrom.Name})
	if err != nil {
		return err
	}
	have, ok := found[l.MovedFrom.Name]
	if !ok || have.Dead() || v.isSubstitute(have) {
		return fmt.Errorf("link %s %w", l.MovedFrom.Name, ErrMissing)
	}
	batch := []*rtnl.Message{link.Set(have.Index, have.Name, link.Change{Alias: l.MovedFrom.Name})}
	err = v.conn.rtnl.Send(ctx, append(batch, link.Rename(have.Index, have.Name, l.Name)...))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", err, ErrExists)
	}
	delete(v.links.found, l.MovedFrom.Name)
	return err
}

// isSubstitute reports whether a link is one that the space made under another one's former name.
func (v *view) isSubstitute(have link.Found) bool {
	for _, l := range v.want.Links {
		if l.Name == have.Name && l.Kind != "" && l.Alias != "" && l.Alias == have.Alias {
			return true
		}
	}
	return false
}

// renameBack restores the names of the links of a space that were only renamed, after their substitutes were deleted.
func (v *view) renameBack(ctx context.Context) error {
	var errs []error
	for _, l := range v.want.Links {
		if v.conn == nil || !v.inPlace(l) {
			continue
		}
		now, err := v.conn.reader.LinksByName(ctx, []string{l.Name, l.MovedFrom.Name})
		if err != nil {
			return in(v.name, err)
		}
		var batch []*rtnl.Message
		have, away := now[l.Name]
		if away = away && have.Alias == l.MovedFrom.Name; away {
			batch = link.Rename(have.Index, l.Name, l.MovedFrom.Name)
		} else if have = now[l.MovedFrom.Name]; have.Alias != l.MovedFrom.Name {
			continue
		}
		err = v.conn.rtnl.Send(ctx, append(batch, link.Unmark(have.Index, l.MovedFrom.Name)))
		if errors.Is(err, unix.EEXIST) {
			err = fmt.Errorf("%w: rename the link %s: the name belongs to %s", err, l.MovedFrom.Name, l.Name)
		}
		errs = append(errs, in(v.name, err))
	}
	return errors.Join(errs...)
}
