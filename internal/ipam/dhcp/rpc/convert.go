// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"fmt"
	"net"
	"net/netip"
)

func toIP(a netip.Addr) net.IP {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

func toNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// fromIP reads an address; the unspecified one means none, as the reference's routes over a link have it.
func fromIP(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip)
	if !ok || a.Unmap().IsUnspecified() {
		return netip.Addr{}
	}
	return a.Unmap()
}

func fromNet(n net.IPNet) (netip.Prefix, error) {
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if a = a.Unmap(); !ok || bits == 0 || bits == 128 && a.Is4() && ones < 96 {
		return netip.Prefix{}, fmt.Errorf("%w: %v %v is no prefix", ErrDaemon, n.IP, n.Mask)
	}
	if bits == 128 && a.Is4() {
		ones -= 96
	}
	return netip.PrefixFrom(a, ones), nil
}
