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

// A moved link has its old name as its alias while it is away, as with the reference plugin: so its origin is known,
// also when its namespace was deleted and the kernel has moved a physical device back under some free name.

// moveLinks moves the links of a space from their origins. Each is marked before it is moved.
func (a *apply) moveLinks(ctx context.Context, v *view) error {
	for _, l := range v.want.Links {
		if _, there := v.links.found[l.Name]; there || l.MovedFrom == nil {
			continue
		}
		move := a.moveLink
		if v.inPlace(l) {
			move = func(ctx context.Context, v *view, l state.Link) error { return v.renameLink(ctx, l) }
		}
		if err := move(ctx, v, l); err != nil {
			return in(l.MovedFrom.Space, err)
		}
		now, err := v.conn.reader.LinksByName(ctx, []string{l.Name})
		if err != nil {
			return in(v.name, err)
		}
		if _, ok := now[l.Name]; !ok {
			return in(v.name, fmt.Errorf("%s: link is not in its new namespace: %w", l, errRaced))
		}
		v.links.found[l.Name] = now[l.Name]
	}
	return nil
}

func (a *apply) moveLink(ctx context.Context, v *view, l state.Link) error {
	from := a.view(l.MovedFrom.Space)
	if from.conn == nil || from == v {
		return fmt.Errorf("%s: %w", l, ErrGone)
	}
	found, err := from.conn.reader.LinksByName(ctx, []string{l.MovedFrom.Name})
	if err != nil {
		return err
	}
	have, ok := found[l.MovedFrom.Name]
	if !ok || have.Dead() {
		return fmt.Errorf("link %s %w", l.MovedFrom.Name, ErrMissing)
	}
	ns, done, err := a.spaces.descriptor(v.name)
	if err != nil {
		return err
	}
	defer done()
	batch := []*rtnl.Message{
		link.Set(have.Index, have.Name, link.Change{Alias: l.MovedFrom.Name}), link.Move(have.Index, have.Name, ns, l.Name),
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

// descriptor returns a descriptor of a space's namespace, and a function that releases it.
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

// moveLinksBack moves the links of a space back to their origins (host-device, SR-IOV VF, on DEL), each under its old
// name and without a mark. A link that was not moved yet only loses its mark; one that the kernel has moved back,
// because its namespace was deleted, is renamed.
func (s Spaces) moveLinksBack(ctx context.Context, v *view) error {
	var errs []error
	for _, l := range v.want.Links {
		if l.MovedFrom == nil || v.inPlace(l) || s.conn(l.MovedFrom.Space) == nil {
			continue
		}
		if have, ok := v.links.found[l.Name]; ok && v.conn != nil && have.Alias == l.MovedFrom.Name {
			errs = append(errs, in(v.name, s.moveBack(ctx, v, l, have)))
		}
		errs = append(errs,
			in(l.MovedFrom.Space, s.conn(l.MovedFrom.Space).awaitReturn(ctx, l, v.conn == nil && l.MovedFrom.Hardware)))
	}
	return errors.Join(errs...)
}

const (
	returnTimeout = 5 * time.Second
	returnPoll    = 20 * time.Millisecond
)

// awaitReturn renames a link that is back. It waits for a physical device whose namespace was deleted: a worker of the
// kernel moves it. When the device does not appear (a process still uses the namespace, or it was unplugged) nothing
// can be done.
func (c *Conn) awaitReturn(ctx context.Context, l state.Link, wait bool) error {
	for deadline := time.Now().Add(returnTimeout); ; {
		back, err := c.rename(ctx, l)
		if back || err != nil || !wait || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(returnPoll):
		}
	}
}

func (s Spaces) moveBack(ctx context.Context, v *view, l state.Link, have link.Found) error {
	ns, done, err := s.descriptor(l.MovedFrom.Space)
	if err != nil {
		return err
	}
	defer done()
	// The kernel moves a link before it renames it: if the name is in use, the link would stay there under the
	// container's name.
	taken, err := s.conn(l.MovedFrom.Space).reader.LinksByName(ctx, []string{l.MovedFrom.Name})
	if err != nil {
		return in(l.MovedFrom.Space, err)
	}
	if _, is := taken[l.MovedFrom.Name]; is {
		return fmt.Errorf("link %s: %w: rename the %s link %s: the name belongs to this one", l.Name, ErrExists,
			l.MovedFrom.Space, l.MovedFrom.Name)
	}
	delete(v.links.found, l.Name)
	batch := []*rtnl.Message{
		link.SetUp(have.Index, have.Name, false),
		link.Move(have.Index, have.Name, ns, l.MovedFrom.Name),
	}
	err = v.conn.rtnl.Send(ctx, batch)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: rename the %s link %s: the name belongs to this one", err, l.MovedFrom.Space, l.MovedFrom.Name)
	}
	return err
}

// rename reports whether a link is back, and restores its name if it has another one.
func (c *Conn) rename(ctx context.Context, l state.Link) (back bool, err error) {
	found, err := c.reader.LinksByName(ctx, []string{l.MovedFrom.Name})
	if err != nil {
		return false, err
	}
	have, back := found[l.MovedFrom.Name]
	if have.Alias != l.MovedFrom.Name {
		all, err := c.reader.Links(ctx, 0)
		if err != nil {
			return false, err
		}
		for _, f := range all {
			if f.Alias == l.MovedFrom.Name && !f.Dead() {
				if back {
					return true, fmt.Errorf("link %s: %w: rename the link %s: the name belongs to this one", f.Name,
						ErrExists, l.MovedFrom.Name)
				}
				have, back = f, true
			}
		}
	}
	if have.Alias != l.MovedFrom.Name {
		return back, nil
	}
	var batch []*rtnl.Message
	if have.Name != l.MovedFrom.Name {
		batch = link.Rename(have.Index, have.Name, l.MovedFrom.Name)
	}
	return true, c.rtnl.Send(ctx, append(batch, link.Unmark(have.Index, l.MovedFrom.Name)))
}
