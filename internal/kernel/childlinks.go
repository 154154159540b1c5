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

// parents returns the links of one space that are parents of the fragment's links.
func parents(f state.Fragment, name state.SpaceName) []string {
	var out []string
	for _, space := range []state.Space{f.Host, f.Pod} {
		for _, l := range space.Links {
			if l.Parent != nil && l.Parent.Space == name {
				out = append(out, l.Parent.Name)
			}
		}
	}
	return out
}

// separately reports whether a link is created by its own request, after all others of its namespace: on top of its
// parent, or not by rtnetlink.
func separately(l state.Link) bool { return l.Parent != nil || l.Kind == state.Tap }

// makeSingly makes the missing links of a namespace that cannot be part of a batch.
func (a *apply) makeSingly(ctx context.Context, v *view) error {
	for _, l := range v.want.Links {
		if _, there := v.links.found[l.Name]; there || !separately(l) {
			continue
		}
		how := a.makeOnParent
		if l.Kind == state.Tap {
			how = a.makeTap
		}
		if err := how(ctx, v, l); err != nil {
			return err
		}
	}
	return nil
}

// makeOnParent makes a link on top of its parent. The request is made in the parent's namespace.
func (a *apply) makeOnParent(ctx context.Context, v *view, l state.Link) error {
	from := a.view(l.Parent.Space)
	parent, ok := from.links.found[l.Parent.Name]
	if !ok || from.conn == nil {
		return fmt.Errorf("%s: parent %s %w", l, l.Parent.Name, ErrMissing)
	}
	ns := -1
	if from != v {
		fd, done, err := a.spaces.descriptor(v.name)
		if err != nil {
			return err
		}
		defer done()
		ns = fd
	}
	master := v.links.found[l.Master].Index
	index := v.put(l, master)
	if l.Kind == state.Ipvlan || l.Macvlan != nil && l.Macvlan.Mode == "passthru" {
		made := v.links.found[l.Name]
		made.MAC = parent.MAC // whatever MAC was requested
		v.links.found[l.Name] = made
	}
	err := from.conn.rtnl.Send(ctx, []*rtnl.Message{link.CreateOnParent(l, index, master, parent.Index, ns)})
	if err == nil {
		return nil
	}
	delete(v.links.found, l.Name)
	return a.explainParent(ctx, v, l, index, err)
}

// explainParent distinguishes a conflict, after which reading again helps, from a parent that is in use otherwise.
func (a *apply) explainParent(ctx context.Context, v *view, l state.Link, index int, err error) error {
	if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	now, readErr := v.conn.reader.LinksByName(ctx, []string{l.Name})
	if readErr != nil || len(now) > 0 {
		return errors.Join(fmt.Errorf("%w: %w", err, errRaced), readErr)
	}
	for _, c := range []*Conn{v.conn, a.view(l.Parent.Space).conn} {
		if _, taken, readErr := c.reader.LinkByIndex(ctx, index); readErr != nil || taken {
			return errors.Join(fmt.Errorf("%w: %w", err, errRaced), readErr)
		}
	}
	if errors.Is(err, unix.EEXIST) && l.VLAN != nil {
		return fmt.Errorf("%w: parent %s %w: VLAN %d is in use", err, l.Parent.Name, ErrUsed, l.VLAN.ID)
	}
	return fmt.Errorf("%w: parent %s %w: macvlan, ipvlan, bridge and bond exclude each other", err, l.Parent.Name, ErrUsed)
}

// makeTap makes a tap device.
func (a *apply) makeTap(ctx context.Context, v *view, l state.Link) error {
	err := v.conn.ns.Do(func() error { return link.MakeTap(l) })
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", err, errRaced)
	}
	if err != nil {
		return err
	}
	now, err := v.conn.reader.LinksByName(ctx, []string{l.Name})
	if err != nil {
		return err
	}
	made, ok := now[l.Name]
	if !ok {
		return fmt.Errorf("%s: it was created and is gone: %w", l, errRaced)
	}
	v.links.found[l.Name], v.links.made[l.Name] = made, true
	return nil
}
