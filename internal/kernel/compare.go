// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/state"
)

// foreign tells why a link of a wanted name is not ours to change, empty when it is.
func foreign(want state.Link, have link.Found) error {
	if want.Kind != "" && have.Kind != want.Kind {
		kind := string(have.Kind)
		if kind == "" {
			kind = "physical or loopback"
		}
		return fmt.Errorf("link %s: a link of kind %s %w", want.Name, kind, ErrForeign)
	}
	if want.Alias != "" && !want.Shared && have.Alias != "" && have.Alias != want.Alias {
		return fmt.Errorf("link %s: marked %q: %w", want.Name, have.Alias, ErrForeign)
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
	if want.Alias != "" && want.Alias != have.Alias && (!want.Shared || have.Alias == "" && v.made[want.Name]) {
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
	if want.Port != nil && (have.Port == nil || !covers(*want.Port, *have.Port) || c.Master != nil) {
		c.Port, ok = want.Port, true
	}
	return c, ok
}

func differs(want, have *bool) bool { return want != nil && (have == nil || *want != *have) }

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
	number := func(w, h *int) bool { return w != nil && (h == nil || *w != *h) }
	return differs(want.VlanFiltering, have.VlanFiltering) || differs(want.McastSnooping, have.McastSnooping) ||
		number(want.GroupFwdMask, have.GroupFwdMask) || number(want.AgeingTimeSecs, have.AgeingTimeSecs)
}

// hasAddr tells whether the address is there; broken is one that must be replaced (its duplicate check failed).
func (v *view) hasAddr(want state.Addr) (found *link.FoundAddr, equal bool) {
	for i, have := range v.addrs[want.Link] {
		if have.Prefix != want.Prefix {
			continue
		}
		return &v.addrs[want.Link][i], have.Peer == want.Peer && have.NoPrefixRoute == want.NoPrefixRoute && !have.Failed
	}
	return nil, false
}

// hasRoute finds the route that want would replace and tells whether it already equals it.
func (v *view) hasRoute(want state.Route) (found *link.FoundRoute, equal bool) {
	n := link.Normal(want)
	index := v.links[want.Link].Index
	for i, have := range v.routes {
		same := have.Dst == n.Dst && have.Metric == n.Metric && have.Table == n.Table
		if !same || want.Link != "" && have.Index != index {
			continue
		}
		f := &v.routes[i]
		if routeEqual(n, have) {
			return f, true
		}
		found = f
	}
	return found, false
}

func routeEqual(n state.Route, have link.FoundRoute) bool {
	v4 := n.Dst.Addr().Is4()
	return have.Nexthops == 1 && have.Type == n.Type && have.Gw == n.Gw && have.Protocol == n.Protocol &&
		(!n.Src.IsValid() || have.Src == n.Src) && (!v4 || *have.Scope == *n.Scope) &&
		have.MTU == n.MTU && have.AdvMSS == n.AdvMSS && (have.OnLink == n.OnLink || !v4)
}

func (v *view) hasNeigh(want state.Neigh) (found *link.FoundNeigh, equal bool) {
	for i, have := range v.neighs[want.Link] {
		if have.IP != want.IP || have.Proxy != want.Proxy {
			continue
		}
		return &v.neighs[want.Link][i], want.Proxy || have.Permanent && have.MAC == want.MAC
	}
	return nil, false
}

func (v *view) hasRule(want state.Rule) bool {
	n := link.NormalRule(want)
	return slices.ContainsFunc(v.rules, func(have link.FoundRule) bool { return have.Rule == n })
}

// hasSysctl tells the value that is there and whether it is the wanted one.
func (v *view) hasSysctl(want state.Sysctl) (have string, equal bool) {
	if mode, ok := v.addrGenMode(want); ok {
		return fmt.Sprint(mode), fmt.Sprint(mode) == want.Value || mode < 0 && want.IfPresent
	}
	value := v.values[want.Name]
	if value.Missing {
		return "no such setting", want.IfPresent
	}
	return value.Text, value.Text == strings.Join(strings.Fields(want.Value), " ")
}

// addrGenMode answers for net/ipv6/conf/LINK/addr_gen_mode of a link that was read, which the link's own message says.
func (v *view) addrGenMode(s state.Sysctl) (int, bool) {
	name, ok := strings.CutPrefix(s.Name, "net/ipv6/conf/")
	if !ok {
		return 0, false
	}
	name, ok = strings.CutSuffix(name, "/addr_gen_mode")
	if !ok {
		return 0, false
	}
	f, ok := v.links[name]
	return f.AddrGenMode, ok
}

// ipv4Conf is the number of a setting of net/ipv4/conf/LINK that may ride in the message that makes LINK
// (linux/ip.h, IPV4_DEVCONF_*).
func ipv4Conf(setting string) (uint16, bool) {
	switch setting {
	case "forwarding":
		return 1, true
	case "proxy_arp":
		return 3, true
	case "send_redirects":
		return 6, true
	case "rp_filter":
		return 8, true
	case "arp_announce":
		return 18, true
	case "arp_ignore":
		return 19, true
	case "arp_notify":
		return 22, true
	case "accept_local":
		return 23, true
	case "route_localnet":
		return 26, true
	}
	return 0, false
}

// ridesWith tells the link and the number of a setting that can be given in the link's own message.
func ridesWith(s state.Sysctl) (name string, id uint16, ok bool) {
	rest, ok := strings.CutPrefix(s.Name, "net/ipv4/conf/")
	if !ok {
		return "", 0, false
	}
	cut := strings.LastIndexByte(rest, '/')
	if cut < 0 {
		return "", 0, false
	}
	id, ok = ipv4Conf(rest[cut+1:])
	return rest[:cut], id, ok
}

// inLinkMessage tells whether a setting travels with its link instead of a file: always addr_gen_mode, and the IPv4
// settings of a link that is only now made.
func (v *view) inLinkMessage(s state.Sysctl) bool {
	if _, ok := v.addrGenMode(s); ok {
		return true
	}
	name, _, ok := ridesWith(s)
	return ok && v.made[name]
}

// linkLocal tells whether an address is one that the kernel makes by itself.
func linkLocal(p netip.Prefix) bool { return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() }
