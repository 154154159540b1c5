// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// foreign tells why a link of a wanted name is not ours to change, nil when it is. Ours is what bears the wanted mark.
// One without any mark is ours when it has the MAC that the plan chose: whoever made it was killed before the mark, or is
// about to set it.
func foreign(want state.Link, have link.Found) error {
	if want.From != nil && have.Alias != want.From.Name {
		return fmt.Errorf("link %s: not the one from %s: %w", want.Name, want.From.Name, ErrForeign)
	}
	if want.Kind == "" {
		return nil
	}
	if have.Kind != want.Kind {
		kind := string(have.Kind)
		if kind == "" {
			kind = "physical or loopback"
		}
		return fmt.Errorf("link %s: a link of kind %s %w", want.Name, kind, ErrForeign)
	}
	switch {
	case want.Alias == "" || want.Alias == have.Alias || want.Adopted && have.Alias == "":
		return nil
	case have.Alias != "" && want.Shared:
		return nil // it was adopted, or has its mark from another plan
	case have.Alias != "":
		return fmt.Errorf("link %s: marked %q: %w", want.Name, have.Alias, ErrForeign)
	case want.MAC.IsZero() || want.MAC != have.MAC:
		return fmt.Errorf("link %s: has no mark and another MAC address: %w", want.Name, ErrForeign)
	}
	return nil
}

// change is what must be set on a link that exists; ok is false when nothing must. Up is left to the caller's order.
func (v *view) change(want state.Link, have link.Found) (c link.Change, ok bool) {
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
	if want.Master != "" && v.links[want.Master].Index != have.MasterIndex {
		index := v.links[want.Master].Index
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

func differs(want, have *bool) bool { return want != nil && (have == nil || *want != *have) }

// portDiffers tells whether a port's attributes must be set; a link that changes its master begins with the kernel's.
func (v *view) portDiffers(want state.Link, have link.Found) bool {
	if want.Port == nil {
		return false
	}
	p := state.PortAttrs{}
	if have.Port != nil && (want.Master == "" || v.links[want.Master].Index == have.MasterIndex) {
		p = *have.Port
	}
	return !covers(*want.Port, p)
}

// covers tells whether have agrees with every attribute that want sets.
func covers(want, have state.PortAttrs) bool {
	return !differs(want.Hairpin, have.Hairpin) && !differs(want.Learning, have.Learning) && !differs(want.Flood, have.Flood) &&
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
	return differs(want.VlanFiltering, have.VlanFiltering) || differs(want.McastSnooping, have.McastSnooping) ||
		numberDiffers(want.GroupFwdMask, have.GroupFwdMask) || numberDiffers(want.AgeingTimeSecs, have.AgeingTimeSecs)
}

func numberDiffers(want, have *int) bool { return want != nil && (have == nil || *want != *have) }

// hasAddr tells what is there of an address and whether it is as wanted; one whose duplicate check failed is not.
func (v *view) hasAddr(want state.Addr) (found *link.FoundAddr, equal bool) {
	for i, have := range v.addrs[want.Link] {
		if have.Prefix != want.Prefix || want.Peer.IsValid() && have.Peer != want.Peer {
			continue
		}
		return &v.addrs[want.Link][i], !want.Absent &&
			have.Peer == want.Peer && have.NoPrefixRoute == want.NoPrefixRoute && !have.Failed
	}
	return nil, want.Absent
}

// hasRoute finds the route over the wanted link that has the place of want and tells whether it already equals it. Who
// made a route is compared only when the plan says it.
func (v *view) hasRoute(want state.Route) (found *link.FoundRoute, equal bool) {
	if len(v.routes) == 0 { // as where thousands are brought to a link that has none
		return nil, want.Absent
	}
	n := link.Normal(want)
	index := v.links[want.Link].Index
	there := v.routes[routePlace{n.Dst, n.Metric, n.Table}]
	for i, have := range there {
		if want.Link != "" && have.Index != index {
			continue
		}
		f := &there[i]
		if want.Absent {
			if have.Gw == n.Gw && !v.wanted(have) {
				return f, false
			}
			continue
		}
		if want.Coexists {
			one := only(n, have)
			if have, f = one, &one; have.Gw != n.Gw {
				continue
			}
		}
		if routeEqual(n, have) && (want.Protocol == 0 || want.Protocol == have.Protocol) {
			return f, true
		}
		if want.Coexists && !oursRoute(want, have) {
			continue
		}
		found = f
	}
	return found, want.Absent
}

// wanted reports whether a route is there because the same plan asks for it. It may ask for one in the place of a route that it
// does not want, and for the same one.
func (v *view) wanted(have link.FoundRoute) bool {
	return slices.ContainsFunc(v.want.Routes, func(o state.Route) bool {
		n := link.Normal(o)
		return !o.Absent && o.Link != "" && v.links[o.Link].Index == have.Index &&
			n.Dst == have.Dst && n.Metric == have.Metric && n.Table == have.Table && routeEqual(n, have)
	})
}

// only is the next hop of an IPv6 route that a wanted one has, without those beside it: they are routes of their own, which
// the kernel lists together.
func only(n state.Route, have link.FoundRoute) link.FoundRoute {
	if n.Dst.Addr().Is6() && slices.Contains(have.Beside, n.Gw) {
		have.Gw = n.Gw
	}
	if n.Dst.Addr().Is6() && have.Gw == n.Gw {
		have.Beside, have.Nexthops = nil, 1
	}
	return have
}

func routeEqual(n state.Route, have link.FoundRoute) bool {
	v4 := n.Dst.Addr().Is4()
	return have.Nexthops == 1+len(n.Beside) && have.Type == n.Type && sameGateways(n, have) &&
		(!n.Src.IsValid() || have.Src == n.Src) && (!v4 || *have.Scope == *n.Scope) &&
		have.MTU == n.MTU && have.AdvMSS == n.AdvMSS && (have.OnLink == n.OnLink || !v4)
}

// sameGateways compares next hops; the kernel may list several in any order.
func sameGateways(n state.Route, have link.FoundRoute) bool {
	if len(n.Beside) == 0 {
		return have.Gw == n.Gw
	}
	all := append([]netip.Addr{n.Gw}, n.Beside...)
	return slices.Contains(all, have.Gw) && !slices.ContainsFunc(have.Beside, func(gw netip.Addr) bool { return !slices.Contains(all, gw) })
}

func (v *view) hasNeigh(want state.Neigh) (found *link.FoundNeigh, equal bool) {
	have, ok := v.neighs[neighPlace{v.links[want.Link].Index, want.IP, want.Proxy}]
	if !ok {
		return nil, false
	}
	return &have, want.Proxy || have.Permanent && have.MAC == want.MAC
}

func (v *view) hasRule(want state.Rule) bool {
	n := link.NormalRule(want)
	return slices.ContainsFunc(v.rules, func(have link.FoundRule) bool { return have.Rule == n })
}

// linkLocal tells whether an address is one that the kernel makes by itself.
func linkLocal(p netip.Prefix) bool { return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() }

// weftMade tells whether weft made a shared link: it is marked, or it was to be and has the MAC that was chosen for it, because
// who made it was killed before the mark.
func weftMade(want state.Link, have link.Found) bool {
	if have.Alias == "" {
		return strings.HasPrefix(want.Alias, SharedMark) && !want.MAC.IsZero() && want.MAC == have.MAC
	}
	return strings.HasPrefix(have.Alias, SharedMark)
}
