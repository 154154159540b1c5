// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// When a link enters or leaves a VRF, the kernel takes it down and up again, and deletes its routes and its IPv6
// addresses. This file restores addresses that were added explicitly; routes are up to the plan, because the earlier
// ones were in another table.

// enslave moves links that existed before into their VRF, before they are read. A link made by this Apply has no
// addresses yet, and moves there with its other settings.
func (a *apply) enslave(ctx context.Context) error {
	for _, v := range []*view{a.host, a.pod} {
		for _, l := range v.want.Links {
			have, ok := v.links.old(l.Name)
			master, there := v.links.found[l.Master]
			if !ok || !there || master.Kind != state.VRF || have.MasterIndex == master.Index {
				continue
			}
			if err := v.remaster(ctx, have, master.Index); err != nil {
				return in(v.name, err)
			}
			have.MasterIndex = master.Index
			v.links.found[l.Name] = have
		}
	}
	return nil
}

// remaster changes a link's master, 0 for none, and restores the addresses that are lost by it. They were the link's
// before, so duplicate address detection is skipped.
func (v *view) remaster(ctx context.Context, have link.Found, master int) error {
	before, err := v.conn.reader.Addrs(ctx, have.Index)
	if err != nil {
		return err
	}
	if err := v.conn.rtnl.Send(ctx, []*rtnl.Message{
		link.Set(have.Index, have.Name, link.Change{Master: &master}),
	}); err != nil {
		return err
	}
	after, err := v.conn.reader.Addrs(ctx, have.Index)
	if err != nil {
		return err
	}
	var batch []*rtnl.Message
	for _, a := range before {
		same := func(o link.FoundAddr) bool { return o.Prefix == a.Prefix }
		if a.Own || a.Failed || slices.ContainsFunc(after, same) {
			continue
		}
		a.Link, a.NoDAD = have.Name, true
		batch = append(batch, link.AddAddr(a.Addr, have.Index))
	}
	return v.conn.rtnl.Send(ctx, batch)
}

// leaveVRFs takes links that stay out of the VRFs that the space put them into. A VRF that weft made is deleted with
// its last link.
func (r *removal) leaveVRFs(ctx context.Context, v *view) error {
	if v.conn == nil {
		return nil
	}
	var errs []error
	for _, vrf := range v.want.Links {
		have, ok := v.links.found[vrf.Name]
		if !ok || vrf.Kind != state.VRF || !vrf.Shared || have.Kind != state.VRF {
			continue
		}
		errs = append(errs, in(v.name, r.leaveVRF(ctx, v, vrf, have)))
	}
	return errors.Join(errs...)
}

func (r *removal) leaveVRF(ctx context.Context, v *view, vrf state.Link, have link.Found) error {
	members, err := v.conn.reader.Links(ctx, have.Index)
	if err != nil {
		return err
	}
	used := false
	for _, m := range members {
		mine := func(l state.Link) bool { return l.Name == m.Name && l.Master == vrf.Name }
		switch {
		case m.Dead():
		case !slices.ContainsFunc(v.want.Links, mine):
			used = true
		case !r.dying[v.name][m.Name]:
			if err := v.remaster(ctx, m, 0); err != nil {
				return err
			}
		}
	}
	if used || !weftMade(vrf, have) {
		return nil
	}
	return v.delete(ctx, []link.Found{have})
}
