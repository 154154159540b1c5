// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"errors"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/weft-net/weft/internal/model"
)

// parse6 decodes a message that is not a relay's.
func parse6(packet []byte) (*dhcpv6.Message, error) {
	d, err := dhcpv6.FromBytes(packet)
	if err != nil {
		return nil, err
	}
	m, ok := d.(*dhcpv6.Message)
	if !ok {
		return nil, errors.New("a relay's message")
	}
	return m, nil
}

// read6 decodes a reply. DHCPv6 assigns an address without a prefix: the container's kernel learns prefixes and the
// gateway from router advertisements.
func read6(packet []byte, bound time.Time) (Lease, error) {
	var l Lease
	m, err := parse6(packet)
	if err != nil {
		return l, err
	}
	if err := refusal(m); err != nil {
		return l, err
	}
	addr := addressOf(m)
	if !addr.IsValid() || addr.Is4() || addr.IsUnspecified() || addr.IsMulticast() {
		return l, errors.New("no address")
	}
	l.Address = netip.PrefixFrom(addr, addr.BitLen())
	l.DNS = dns6(m)
	ia := m.Options.OneIANA()
	one := ia.Options.OneAddress()
	renew, rebind := ia.T1, ia.T2
	if renew == 0 && one.PreferredLifetime < infinite {
		renew = one.PreferredLifetime / 2
	}
	l.terms(bound, one.ValidLifetime, renew, rebind, 0.8)
	return l, nil
}

// addressOf returns the first address of a message, invalid if it has none.
func addressOf(m *dhcpv6.Message) netip.Addr {
	ia := m.Options.OneIANA()
	if ia == nil || ia.Options.OneAddress() == nil {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(ia.Options.OneAddress().IPv6Addr)
	return a.Unmap()
}

func dns6(m *dhcpv6.Message) model.DNS {
	var d model.DNS
	for _, ip := range m.Options.DNS() {
		d.Nameservers = append(d.Nameservers, ip.String())
	}
	if list := m.Options.DomainSearchList(); list != nil {
		d.Search = words(list.Labels)
	}
	return d
}
