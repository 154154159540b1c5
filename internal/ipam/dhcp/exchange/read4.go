// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/weft-net/weft/internal/model"
)

// leaseTime4 is the duration of a lease if the server does not send one.
const leaseTime4 = time.Hour

// scopeLink is the scope of an on-link route (RT_SCOPE_LINK).
const scopeLink = 253

func read4(packet []byte, bound time.Time) (Lease, error) {
	var l Lease
	m, err := dhcpv4.FromBytes(packet)
	if err != nil {
		return l, err
	}
	addr, ok := netip.AddrFromSlice(m.YourIPAddr.To4())
	ones, bits := m.SubnetMask().Size()
	switch {
	case !ok || addr.IsUnspecified():
		return l, errors.New("no address")
	case bits != 32:
		return l, errors.New("no subnet mask (option 1): is it asked for?")
	}
	l.Address = netip.PrefixFrom(addr, ones)
	l.Server = addr4(m.ServerIdentifier())
	if routers := m.Router(); len(routers) > 0 {
		l.Gateway = addr4(routers[0])
	}
	l.Routes = routes4(m, l.Gateway)
	l.DNS = dns4(m)
	if v := m.Options.Get(dhcpv4.OptionInterfaceMTU); len(v) == 2 {
		l.MTU = int(binary.BigEndian.Uint16(v))
	}
	l.terms(bound, m.IPAddressLeaseTime(leaseTime4), m.IPAddressRenewalTime(0), m.IPAddressRebindingTime(0), 0.875)
	return l, nil
}

func addr4(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip.To4())
	return a
}

// routes4 returns the classless routes (option 121) or, only without any (RFC 3442), the classful ones (option 33) and
// one to the router.
func routes4(m *dhcpv4.DHCPv4, gateway netip.Addr) []model.Route {
	var out []model.Route
	for _, r := range m.ClasslessStaticRoute() {
		ones, _ := r.Dest.Mask.Size()
		route := model.Route{Dst: netip.PrefixFrom(addr4(r.Dest.IP), ones).Masked(), GW: addr4(r.Router)}
		if route.GW.IsUnspecified() { // on-link; the reference plugins recognize both forms
			scope := scopeLink
			route.Scope = &scope
		}
		out = append(out, route)
	}
	if len(out) > 0 {
		return out
	}
	for v := m.Options.Get(dhcpv4.OptionStaticRoutingTable); len(v) >= 8; v = v[8:] {
		dst, via := addr4(net.IP(v[:4])), addr4(net.IP(v[4:8]))
		const classD = 224                         // and above are not networks
		if v[0] >= classD || dst.IsUnspecified() { // a default route must not be here (RFC 2132)
			continue
		}
		ones, _ := net.IP(v[:4]).DefaultMask().Size()
		out = append(out, model.Route{Dst: netip.PrefixFrom(dst, ones).Masked(), GW: via})
	}
	if gateway.IsValid() {
		out = append(out, model.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), GW: gateway})
	}
	return out
}

func dns4(m *dhcpv4.DHCPv4) model.DNS {
	d := model.DNS{Domain: word(m.DomainName())}
	for _, ip := range m.DNS() {
		d.Nameservers = append(d.Nameservers, ip.String())
	}
	if list := m.DomainSearch(); list != nil {
		d.Search = words(list.Labels)
	}
	return d
}

// word returns a domain in the form for a resolver's configuration, empty if it is invalid.
func word(s string) string {
	for len(s) > 0 && (s[len(s)-1] == 0 || s[len(s)-1] == '.') {
		s = s[:len(s)-1]
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return ""
		}
	}
	return s
}

func words(labels []string) []string {
	var out []string
	for _, s := range labels {
		if s = word(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
