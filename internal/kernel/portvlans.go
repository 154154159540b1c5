// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// ErrNoVlans is wrapped when this kernel's bridges know no VLANs (CONFIG_BRIDGE_VLAN_FILTERING).
var ErrNoVlans = errors.New("this kernel has no bridge VLAN filtering")

// vlanTable is what a port does with each VLAN.
type vlanTable [link.LastVlan + 1]struct{ has, pvid, untagged bool }

func tableOf(ranges []state.VlanRange) *vlanTable {
	var t vlanTable
	for _, r := range ranges {
		for id := r.First; id <= min(r.Last, link.LastVlan); id++ {
			t[id].has, t[id].pvid, t[id].untagged = true, r.PVID, r.Untagged
		}
	}
	return &t
}

// ranges are the VLANs that are chosen, of equal ones as few ranges as possible. A PVID stands alone.
func (t *vlanTable) ranges(choose func(id int) bool) []state.VlanRange {
	var out []state.VlanRange
	for id := 1; id <= link.LastVlan; id++ {
		if !choose(id) {
			continue
		}
		v := t[id]
		if n := len(out); n > 0 && int(out[n-1].Last) == id-1 && !v.pvid && !out[n-1].PVID && out[n-1].Untagged == v.untagged {
			out[n-1].Last++
			continue
		}
		out = append(out, state.VlanRange{First: uint16(id), Last: uint16(id), PVID: v.pvid, Untagged: v.untagged})
	}
	return out
}

// readVlans reads those of ports that were there before, where any are wanted.
func (v *view) readVlans(ctx context.Context) error {
	v.vlans = map[string][]state.VlanRange{}
	for _, l := range v.want.Links {
		f, ok := v.old(l.Name)
		if l.Vlans == nil || !ok {
			continue
		}
		all, err := v.conn.portVlans(ctx, f.Index)
		if err != nil {
			return err
		}
		v.vlans[l.Name] = all[f.Index]
	}
	return nil
}

// portVlans reads the VLANs of a port, or of all ports when index is 0. Where bridges know no VLANs there are none.
func (c *Conn) portVlans(ctx context.Context, index int) (map[int][]state.VlanRange, error) {
	out := map[int][]state.VlanRange{}
	err := c.rtnl.Dump(ctx, whole(link.ListVlans(index), index), func(body []byte) {
		i, ranges := link.DecodeVlans(body)
		out[i] = append(out[i], ranges...)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // not compiled in; no bridge's port
		err = nil
	}
	return out, err
}

// vlanChange is what is to be taken off and put on a port. One that was just made, or that changes its bridge, has what the
// bridge gives to every new port, which may be any.
func (v *view) vlanChange(want state.Link, have link.Found) (gone, add []state.VlanRange) {
	if want.Vlans == nil {
		return nil, nil
	}
	w := tableOf(want.Vlans.Ranges)
	fresh := v.made[want.Name] || want.Master != "" && v.links[want.Master].Index != have.MasterIndex
	if fresh {
		if !want.Vlans.Others {
			gone = []state.VlanRange{{First: 1, Last: link.LastVlan}}
		}
		return gone, w.ranges(func(id int) bool { return w[id].has })
	}
	h := tableOf(v.vlans[want.Name])
	if !want.Vlans.Others {
		gone = h.ranges(func(id int) bool { return h[id].has && !w[id].has })
		for i := range gone {
			gone[i].PVID, gone[i].Untagged = false, false
		}
	}
	return gone, w.ranges(func(id int) bool { return w[id].has && w[id] != h[id] })
}

// vlanBatch brings the ports' VLANs to what is wanted.
func (v *view) vlanBatch() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range v.want.Links {
		have := v.links[l.Name]
		gone, add := v.vlanChange(l, have)
		if len(gone) > 0 {
			batch = append(batch, link.DelVlans(have.Index, l.Name, gone))
		}
		if len(add) > 0 {
			batch = append(batch, link.AddVlans(have.Index, l.Name, add))
		}
	}
	return batch
}

// vlanError says what the kernel means by "operation not supported".
func (v *view) vlanError(err error) error {
	vlans := slices.ContainsFunc(v.want.Links, func(l state.Link) bool {
		return l.Vlans != nil || l.Bridge != nil && l.Bridge.VlanFiltering != nil
	})
	if vlans && errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrNoVlans, err)
	}
	return err
}

// saysVlans is what a port has of the wanted VLANs when that differs, in words.
func (v *view) saysVlans(want state.Link, have link.Found) (says string, differ bool) {
	gone, add := v.vlanChange(want, have)
	return "vlans " + state.PortVlans{Ranges: v.vlans[want.Name]}.String(), len(gone)+len(add) > 0
}

// vlanUsed tells whether any port of a bridge but those in shared has the VLAN that a shared port has for its own.
func (v *view) vlanUsed(ctx context.Context, port link.Found, others []link.Found) (bool, error) {
	all, err := v.conn.portVlans(ctx, 0)
	if err != nil {
		return true, err
	}
	mine := tableOf(all[port.Index])
	for _, other := range others {
		theirs := tableOf(all[other.Index])
		for id := range theirs {
			if theirs[id].has && mine[id].pvid {
				return true, nil
			}
		}
	}
	return false, nil
}
