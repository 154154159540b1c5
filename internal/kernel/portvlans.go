// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/reader"
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
		if n := len(out); n > 0 && int(out[n-1].Last) == id-1 && !v.pvid && !out[n-1].PVID &&
			out[n-1].Untagged == v.untagged {
			out[n-1].Last++
			continue
		}
		out = append(out, state.VlanRange{First: uint16(id), Last: uint16(id), PVID: v.pvid, Untagged: v.untagged})
	}
	return out
}

// portVLANs are what ports of bridges do with VLANs, where a space says it.
type portVLANs struct {
	want   []state.Link
	links  *links
	reader *reader.Reader
	found  map[string][]state.VlanRange // by port
}

// read looks at those of ports that were there before, where any are wanted.
func (p *portVLANs) read(ctx context.Context) error {
	p.found = map[string][]state.VlanRange{}
	for _, l := range p.want {
		f, ok := p.links.old(l.Name)
		if l.Vlans == nil || !ok {
			continue
		}
		all, err := p.reader.PortVLANs(ctx, f.Index)
		if err != nil {
			return err
		}
		p.found[l.Name] = all[f.Index]
	}
	return nil
}

// change is what is to be taken off and put on a port. One that was just made, or that changes its bridge, has what the
// bridge gives to every new port, which may be any.
func (p *portVLANs) change(want state.Link, have link.Found) (gone, add []state.VlanRange) {
	if want.Vlans == nil {
		return nil, nil
	}
	w := tableOf(want.Vlans.Ranges)
	fresh := p.links.made[want.Name] || want.Master != "" && p.links.index(want.Master) != have.MasterIndex
	if fresh {
		if !want.Vlans.Others {
			gone = []state.VlanRange{{First: 1, Last: link.LastVlan}}
		}
		return gone, w.ranges(func(id int) bool { return w[id].has })
	}
	h := tableOf(p.found[want.Name])
	if !want.Vlans.Others {
		gone = h.ranges(func(id int) bool { return h[id].has && !w[id].has })
		for i := range gone {
			gone[i].PVID, gone[i].Untagged = false, false
		}
	}
	return gone, w.ranges(func(id int) bool { return w[id].has && w[id] != h[id] })
}

// batch brings the ports' VLANs to what is wanted.
func (p *portVLANs) batch() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range p.want {
		have := p.links.found[l.Name]
		gone, add := p.change(l, have)
		if len(gone) > 0 {
			batch = append(batch, link.DelVlans(have.Index, l.Name, gone))
		}
		if len(add) > 0 {
			batch = append(batch, link.AddVlans(have.Index, l.Name, add))
		}
	}
	return batch
}

// explain says what the kernel means by "operation not supported".
func (p *portVLANs) explain(err error) error {
	vlans := slices.ContainsFunc(p.want, func(l state.Link) bool {
		return l.Vlans != nil || l.Bridge != nil && l.Bridge.VlanFiltering != nil
	})
	if vlans && errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrNoVlans, err)
	}
	return err
}

// differ is what a port has of the wanted VLANs when that differs, in words.
func (p *portVLANs) differ(want state.Link, have link.Found) (says string, differ bool) {
	gone, add := p.change(want, have)
	return "vlans " + state.PortVlans{Ranges: p.found[want.Name]}.String(), len(gone)+len(add) > 0
}
