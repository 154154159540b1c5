// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// A moved link bears its old name as its alias while it is away, as with the reference plugin: whoever finds it knows
// where it belongs, also when the namespace that it was in has died and the kernel has put a physical device back under
// whatever name was free.

// moveLinks brings the links of a space that are elsewhere. Each is marked before it leaves.
func (a *apply) moveLinks(ctx context.Context, v *view) error {
	for _, l := range v.want.Links {
		if _, there := v.links.found[l.Name]; there || l.From == nil {
			continue
		}
		move := a.moveLink
		if v.inPlace(l) {
			move = func(ctx context.Context, v *view, l state.Link) error { return v.renameLink(ctx, l) }
		}
		if err := move(ctx, v, l); err != nil {
			return in(l.From.Space, err)
		}
		now, err := v.conn.reader.LinksByName(ctx, []string{l.Name})
		if err != nil {
			return in(v.name, err)
		}
		if _, ok := now[l.Name]; !ok {
			return in(v.name, fmt.Errorf("%s: it did not arrive: %w", l, errRaced))
		}
		v.links.found[l.Name] = now[l.Name]
	}
	return nil
}

func (a *apply) moveLink(ctx context.Context, v *view, l state.Link) error {
	from := a.view(l.From.Space)
	if from.conn == nil || from == v {
		return fmt.Errorf("%s: %w", l, ErrGone)
	}
	found, err := from.conn.reader.LinksByName(ctx, []string{l.From.Name})
	if err != nil {
		return err
	}
	have, ok := found[l.From.Name]
	if !ok || have.Dead() {
		return fmt.Errorf("link %s %w", l.From.Name, ErrMissing)
	}
	ns, done, err := a.spaces.descriptor(v.name)
	if err != nil {
		return err
	}
	defer done()
	batch := []*rtnl.Message{
		link.Set(have.Index, have.Name, link.Change{Alias: l.From.Name}), link.Move(have.Index, have.Name, ns, l.Name),
	}
	err = from.conn.rtnl.Send(ctx, batch)
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: %w", err, ErrExists)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: it belongs to its namespace", err)
	}
	return err
}

// descriptor is a descriptor of a space's namespace, which done gives back.
func (s Spaces) descriptor(name state.SpaceName) (fd int, done func(), err error) {
	if fd := s.fd(name); fd >= 0 {
		return fd, func() {}, nil
	}
	if s.conn(name) == nil {
		return -1, nil, ErrGone
	}
	own, err := netns.Current()
	if err != nil {
		return -1, nil, err
	}
	return own.Fd(), func() { _ = own.Close() }, nil
}

// giveBack moves the links of a space back to where they came from, each under its old name and without a mark. One
// that has not left yet loses its mark only; one that the kernel has put back, because its namespace died, gets its
// name.
func (s Spaces) giveBack(ctx context.Context, v *view) error {
	var errs []error
	for _, l := range v.want.Links {
		if l.From == nil || v.inPlace(l) || s.conn(l.From.Space) == nil {
			continue
		}
		if have, ok := v.links.found[l.Name]; ok && v.conn != nil && have.Alias == l.From.Name {
			errs = append(errs, in(v.name, s.moveBack(ctx, v, l, have)))
		}
		errs = append(errs, in(l.From.Space, s.conn(l.From.Space).welcome(ctx, l, v.conn == nil && l.From.Hardware)))
	}
	return errors.Join(errs...)
}

const (
	fallPatience = 5 * time.Second
	fallPause    = 20 * time.Millisecond
)

// welcome gives a link that is back its name. Hardware whose namespace has died is waited for: the kernel has a worker
// for that. Where it does not come (somebody still holds the namespace, or it was unplugged) nothing can be done.
func (c *Conn) welcome(ctx context.Context, l state.Link, wait bool) error {
	for deadline := time.Now().Add(fallPatience); ; {
		back, err := c.rename(ctx, l)
		if back || err != nil || !wait || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(fallPause):
		}
	}
}

func (s Spaces) moveBack(ctx context.Context, v *view, l state.Link, have link.Found) error {
	ns, done, err := s.descriptor(l.From.Space)
	if err != nil {
		return err
	}
	defer done()
	// The kernel moves a link before it renames it: where the name is taken it would stay there under the container's.
	taken, err := s.conn(l.From.Space).reader.LinksByName(ctx, []string{l.From.Name})
	if err != nil {
		return in(l.From.Space, err)
	}
	if _, is := taken[l.From.Name]; is {
		return fmt.Errorf("link %s: %w: rename the %s link %s: the name belongs to this one", l.Name, ErrExists,
			l.From.Space, l.From.Name)
	}
	delete(v.links.found, l.Name)
	batch := []*rtnl.Message{link.SetUp(have.Index, have.Name, false), link.Move(have.Index, have.Name, ns, l.From.Name)}
	err = v.conn.rtnl.Send(ctx, batch)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: rename the %s link %s: the name belongs to this one", err, l.From.Space, l.From.Name)
	}
	return err
}

// rename looks whether a link is back, and gives it its name if it has another.
func (c *Conn) rename(ctx context.Context, l state.Link) (back bool, err error) {
	found, err := c.reader.LinksByName(ctx, []string{l.From.Name})
	if err != nil {
		return false, err
	}
	have, back := found[l.From.Name]
	if have.Alias != l.From.Name {
		all, err := c.reader.Links(ctx, 0)
		if err != nil {
			return false, err
		}
		for _, f := range all {
			if f.Alias == l.From.Name && !f.Dead() {
				if back {
					return true, fmt.Errorf("link %s: %w: rename the link %s: the name belongs to this one", f.Name,
						ErrExists, l.From.Name)
				}
				have, back = f, true
			}
		}
	}
	if have.Alias != l.From.Name {
		return back, nil
	}
	var batch []*rtnl.Message
	if have.Name != l.From.Name {
		batch = link.Rename(have.Index, have.Name, l.From.Name)
	}
	return true, c.rtnl.Send(ctx, append(batch, link.Unmark(have.Index, l.From.Name)))
}
