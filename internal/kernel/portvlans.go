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

// ErrNoVLANs is wrapped when this kernel's bridges do not support VLANs (CONFIG_BRIDGE_VLAN_FILTERING).
var ErrNoVLANs = errors.New("this kernel has no bridge VLAN filtering")

// vlanTable has the state of each VLAN of a port.
type vlanTable [link.LastVLAN + 1]struct{ has, pvid, untagged bool }

func tableOf(ranges []state.VLANRange) *vlanTable {
	var t vlanTable
	for _, r := range ranges {
		for id := r.First; id <= min(r.Last, link.LastVLAN); id++ {
			t[id].has, t[id].pvid, t[id].untagged = true, r.PVID, r.Untagged
		}
	}
	return &t
}

// ranges returns the chosen VLANs, in as few ranges of equal ones as possible. The PVID is a range of its own.
func (t *vlanTable) ranges(choose func(id int) bool) []state.VLANRange {
	var out []state.VLANRange
	for id := 1; id <= link.LastVLAN; id++ {
		if !choose(id) {
			continue
		}
		v := t[id]
		if n := len(out); n > 0 && int(out[n-1].Last) == id-1 && !v.pvid && !out[n-1].PVID &&
			out[n-1].Untagged == v.untagged {
			out[n-1].Last++
			continue
		}
		out = append(out, state.VLANRange{First: uint16(id), Last: uint16(id), PVID: v.pvid, Untagged: v.untagged})
	}
	return out
}

// portVLANs are the wanted VLANs of bridge ports.
type portVLANs struct {
	want   []state.Link
	links  *links
	reader *reader.Reader
	found  map[string][]state.VLANRange // by port
}

// read reads the VLANs of ports that existed before, if any are wanted.
func (p *portVLANs) read(ctx context.Context) error {
	p.found = map[string][]state.VLANRange{}
	for _, l := range p.want {
		f, ok := p.links.old(l.Name)
		if l.VLANs == nil || !ok {
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

// change returns the VLANs to delete and to add on a port with wanted VLANs. A new port, or one that changes its bridge, has the bridge's
// defaults, which are not known.
func (p *portVLANs) change(want state.Link, have link.Found) (gone, add []state.VLANRange) {
	w := tableOf(want.VLANs.Ranges)
	fresh := p.links.made[want.Name] || want.Master != "" && p.links.index(want.Master) != have.MasterIndex
	if fresh {
		if !want.VLANs.Others {
			gone = []state.VLANRange{{First: 1, Last: link.LastVLAN}}
		}
		return gone, w.ranges(func(id int) bool { return w[id].has })
	}
	h := tableOf(p.found[want.Name])
	if !want.VLANs.Others {
		gone = h.ranges(func(id int) bool { return h[id].has && !w[id].has })
		for i := range gone {
			gone[i].PVID, gone[i].Untagged = false, false
		}
	}
	return gone, w.ranges(func(id int) bool { return w[id].has && w[id] != h[id] })
}

// batch returns the requests that make the ports' VLANs as wanted.
func (p *portVLANs) batch() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range p.want {
		if l.VLANs == nil { // the tables of change take 24 kB of the stack
			continue
		}
		have := p.links.found[l.Name]
		gone, add := p.change(l, have)
		if len(gone) > 0 {
			batch = append(batch, link.DelVLANs(have.Index, l.Name, gone))
		}
		if len(add) > 0 {
			batch = append(batch, link.AddVLANs(have.Index, l.Name, add))
		}
	}
	return batch
}

// explain adds the likely cause to "operation not supported".
func (p *portVLANs) explain(err error) error {
	vlans := slices.ContainsFunc(p.want, func(l state.Link) bool {
		return l.VLANs != nil || l.Bridge != nil && l.Bridge.VLANFiltering != nil
	})
	if vlans && errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrNoVLANs, err)
	}
	return err
}

// differ prints a port's VLANs, and reports whether they differ from the wanted ones.
func (p *portVLANs) differ(want state.Link, have link.Found) (says string, differ bool) {
	if want.VLANs == nil {
		return "", false
	}
	gone, add := p.change(want, have)
	return "vlans " + state.PortVLANs{Ranges: p.found[want.Name]}.String(), len(gone)+len(add) > 0
}
