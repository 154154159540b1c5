// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// linkSettings are the settings of existing links: MAC address, MTU, master, attributes of a port and of their kind,
// and whether they are up.
type linkSettings struct {
	want  []state.Link
	links *links
	vlans *portVLANs
	// others returns the links of the other namespace, nil if they were not read; a nil function means the same.
	others func(state.SpaceName) map[string]link.Found
	// raised are the links that this Apply has brought up.
	raised []state.Link
	// ipv6Reset means that a link's MTU was raised to 1280 or more: below it has no IPv6, and all its IPv6 settings are
	// reset.
	ipv6Reset bool
}

func (s *linkSettings) read(ctx context.Context) error { return s.vlans.read(ctx) }

// batch returns the requests for settings that differ, except for the administrative state, which comes last: the
// kernel reads these settings when a link comes up. readdressed are the links whose MAC changes, for which the kernel
// deletes all neighbors.
func (s *linkSettings) batch() (batch []*rtnl.Message, readdressed []int, err error) {
	for _, l := range s.want {
		have := s.links.found[l.Name]
		if c, ok := s.change(l, have); ok {
			const leastIPv6 = 1280
			if !c.MAC.IsZero() {
				readdressed = append(readdressed, have.Index)
			}
			s.ipv6Reset = s.ipv6Reset || c.MTU >= leastIPv6 && have.MTU > 0 && have.MTU < leastIPv6
			batch = append(batch, link.Set(have.Index, l.Name, c))
		}
		if s.portDiffers(l, have) { // a separate request: the kernel applies these before the master
			batch = append(batch, link.Set(have.Index, l.Name, link.Change{Port: l.Port}))
		}
		attrs, err := attrsBatch(l, have)
		if err != nil {
			return nil, nil, err
		}
		batch = append(batch, attrs...)
	}
	return batch, readdressed, nil
}

// upBatch returns the requests for administrative states that differ.
func (s *linkSettings) upBatch(which func(state.Link) bool) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range s.want {
		have := s.links.found[l.Name]
		if l.Up != nil && which(l) && differs(l.Up, have.Up) {
			batch = append(batch, link.SetUp(have.Index, l.Name, *l.Up))
			if *l.Up && l.Kind != "" {
				s.raised = append(s.raised, l)
			}
		}
	}
	return batch
}

// readBatch returns requests that read the links that this Apply brought up, and their masters.
func (s *linkSettings) readBatch() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range s.raised {
		batch = append(batch, link.GetIndex(s.links.index(l.Name)))
		if master, ok := s.links.get(l.Master); ok {
			batch = append(batch, link.GetIndex(master.Index))
		}
	}
	return batch
}

// isUp reports whether a link is up after this Apply.
func (s *linkSettings) isUp(name string) bool {
	for _, l := range s.want {
		if l.Name == name && l.Up != nil {
			return *l.Up
		}
	}
	up := s.links.found[name].Up
	return up != nil && *up
}

func (s *linkSettings) diff(out *diffs) {
	for _, want := range s.want {
		if have, differ := s.differs(want); differ {
			out.add(want, have)
		}
	}
}

func (s *linkSettings) report(out *state.Space) {
	for _, want := range s.want {
		have, ok := s.links.get(want.Name)
		if _, differ := s.differs(want); !differ {
			out.Links = append(out.Links, want)
		} else if ok {
			out.Links = append(out.Links, s.links.named(have))
		}
	}
}

// differs reports whether a link is not as wanted, and prints the existing one.
func (s *linkSettings) differs(want state.Link) (says string, differ bool) {
	have, ok := s.links.get(want.Name)
	if !ok {
		return "", true
	}
	_, changed := s.change(want, have)
	if changed || foreign(want, have) != nil || differs(want.Up, have.Up) || differs(want.TxChecksum, have.TxChecksum) ||
		attrsDiffer(want, have) ||
		s.parentDiffers(want, have) || s.portDiffers(want, have) || want.Kind != "" && want.Kind != have.Kind {
		return s.links.named(have).String(), true
	}
	if says, differ := s.vlans.differ(want, have); differ {
		return s.links.named(have).String() + " " + says, true
	}
	if want.Kind != state.Veth || want.Peer == nil {
		return "", false
	}
	if others := s.otherSpaceLinks(want.Peer.Space); others != nil {
		if err := pairError(want, have, others); err != nil {
			return err.Error(), true
		}
	}
	return "", false
}

// otherSpaceLinks returns the links of the other space, if they were read.
func (s *linkSettings) otherSpaceLinks(space state.SpaceName) map[string]link.Found {
	if s.others == nil {
		return nil
	}
	return s.others(space)
}

// change returns what must be set on an existing link; ok is false when nothing must. The caller sets Up, in its order.
func (s *linkSettings) change(want state.Link, have link.Found) (c link.Change, ok bool) {
	if !want.MAC.IsZero() && want.MAC != have.MAC {
		c.MAC, ok = want.MAC, true
	}
	if want.MTU != 0 && want.MTU != have.MTU {
		c.MTU, ok = want.MTU, true
	}
	if numberDiffers(want.TxQLen, have.TxQLen) {
		c.TxQLen, ok = want.TxQLen, true
	}
	if want.Alias != "" && want.Alias != have.Alias && (!want.Shared || have.Alias == "") {
		c.Alias, ok = want.Alias, true
	}
	if want.Master != "" && s.links.index(want.Master) != have.MasterIndex {
		index := s.links.index(want.Master)
		c.Master, ok = &index, true
	}
	if differs(want.Promisc, have.Promisc) {
		c.Promisc, ok = want.Promisc, true
	}
	if differs(want.AllMulti, have.AllMulti) {
		c.AllMulti, ok = want.AllMulti, true
	}
	return c, ok
}

// portDiffers reports whether a port's attributes must be set; a link that changes its master starts with the kernel's
// defaults.
func (s *linkSettings) portDiffers(want state.Link, have link.Found) bool {
	if want.Port == nil {
		return false
	}
	p := state.PortAttrs{}
	if have.Port != nil && (want.Master == "" || s.links.index(want.Master) == have.MasterIndex) {
		p = *have.Port
	}
	return !covers(*want.Port, p)
}

// parentDiffers reports whether a link has another parent, if both could be read.
func (s *linkSettings) parentDiffers(want state.Link, have link.Found) bool {
	if want.Parent == nil {
		return false
	}
	others := s.otherSpaceLinks(want.Parent.Space)
	if others == nil {
		return false
	}
	parent, ok := others[want.Parent.Name]
	return !ok || have.PeerIndex != parent.Index
}

func differs(want, have *bool) bool { return want != nil && (have == nil || *want != *have) }

func numberDiffers(want, have *int) bool { return want != nil && (have == nil || *want != *have) }

// covers reports whether have agrees with every attribute that want sets.
func covers(want, have state.PortAttrs) bool {
	return !differs(want.Hairpin, have.Hairpin) && !differs(want.Learning, have.Learning) &&
		!differs(want.Flood, have.Flood) &&
		!differs(want.McastFlood, have.McastFlood) && !differs(want.BcastFlood, have.BcastFlood) &&
		!differs(want.Isolated, have.Isolated) && !differs(want.NeighSupp, have.NeighSupp)
}

func bridgeDiffers(want, have *state.BridgeAttrs) bool {
	if want == nil {
		return false
	}
	if have == nil {
		have = &state.BridgeAttrs{}
	}
	return differs(want.VLANFiltering, have.VLANFiltering) || differs(want.McastSnooping, have.McastSnooping) ||
		numberDiffers(want.GroupFwdMask, have.GroupFwdMask) || numberDiffers(want.AgeingTimeSecs, have.AgeingTimeSecs)
}

// attrsDiffer reports whether the attributes of a link's kind are not as wanted.
func attrsDiffer(want state.Link, have link.Found) bool {
	return bridgeDiffers(want.Bridge, have.Bridge) || changeable(want, have) || fixed(want, have)
}

// changeable reports whether attributes differ that can be changed on an existing link.
func changeable(want state.Link, have link.Found) bool {
	if w := want.Macvlan; w != nil {
		h := have.Macvlan
		return h == nil || w.Mode != "" && w.Mode != h.Mode || numberDiffers(w.BcQueueLen, h.BcQueueLen)
	}
	if w := want.VXLAN; w != nil {
		return have.VXLAN == nil || w.Local != have.VXLAN.Local || differs(w.Learning, have.VXLAN.Learning)
	}
	if w := want.IPIP; w != nil {
		return have.IPIP == nil || *w != *have.IPIP
	}
	w := want.Ipvlan
	return w != nil && (have.Ipvlan == nil || w.Mode != "" && w.Mode != have.Ipvlan.Mode)
}

// fixed reports whether attributes differ that cannot be changed.
func fixed(want state.Link, have link.Found) bool {
	id := func(w, h *uint32) bool { return w != nil && (h == nil || *w != *h) }
	switch {
	case want.VLAN != nil:
		return have.VLAN == nil || *want.VLAN != *have.VLAN
	case want.VRF != nil:
		return have.VRF == nil || *want.VRF != *have.VRF
	case want.VXLAN != nil:
		return have.VXLAN == nil || !sameVXLAN(*want.VXLAN, *have.VXLAN)
	case want.Tun != nil:
		w, h := want.Tun, have.Tun
		return h == nil || w.IP != h.IP || w.MultiQueue != h.MultiQueue || id(w.Owner, h.Owner) || id(w.Group, h.Group)
	}
	return false
}

func sameVXLAN(want, have state.VXLANAttrs) bool {
	return want.VNI == have.VNI && want.UDPPort() == have.UDPPort() && want.Local.Is4() == have.Local.Is4() &&
		want.GBP == have.GBP
}

// attrsBatch returns the requests for attributes of a link's kind that differ.
func attrsBatch(want state.Link, have link.Found) ([]*rtnl.Message, error) {
	switch {
	case fixed(want, have):
		return nil, fmt.Errorf("%s: have %s: %w", want, have.Link, ErrForeign)
	case changeable(want, have):
		return []*rtnl.Message{link.SetAttrs(have.Index, want)}, nil
	case bridgeDiffers(want.Bridge, have.Bridge):
		return []*rtnl.Message{link.SetBridge(have.Index, want.Name, *want.Bridge)}, nil
	}
	return nil, nil
}
