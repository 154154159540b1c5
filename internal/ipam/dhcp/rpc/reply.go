// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// Reply is the result of Allocate, in the form of the reference's library (types/100.Result), restricted to an IPAM
// result: it has no interfaces.
type Reply struct {
	CNIVersion string
	IPs        []IP
	Routes     []Route
	DNS        model.DNS
}

// IP is an address of a reply.
type IP struct {
	Address net.IPNet
	Gateway net.IP
}

// Route is a route of a reply.
type Route struct {
	Dst                   net.IPNet
	GW                    net.IP
	MTU, AdvMSS, Priority int
	// Table and Scope arrive as nil if they point to zero: gob does not send zero values.
	Table, Scope *int
}

// NewReply returns the reply for a result.
func NewReply(r model.Result) Reply {
	out := Reply{CNIVersion: "1.1.0", DNS: r.DNS}
	for _, ip := range r.IPs {
		out.IPs = append(out.IPs, IP{Address: ipNet(ip.Address), Gateway: ip.Gateway.AsSlice()})
	}
	for _, x := range r.Routes {
		out.Routes = append(out.Routes, Route{
			Dst: ipNet(x.Dst), GW: x.GW.AsSlice(), MTU: x.MTU, AdvMSS: x.AdvMSS, Priority: x.Priority, Table: x.Table,
			Scope: x.Scope,
		})
	}
	return out
}

// Result returns the reply's result. Its errors wrap ErrDaemon.
func (r Reply) Result() (model.Result, error) {
	out := model.Result{DNS: r.DNS}
	for _, x := range r.IPs {
		ip := model.IP{Gateway: addr(x.Gateway)}
		var err error
		if ip.Address, err = prefix(x.Address); err != nil {
			return model.Result{}, err
		}
		out.IPs = append(out.IPs, ip)
	}
	for _, x := range r.Routes {
		route := model.Route{
			GW: addr(x.GW), MTU: x.MTU, AdvMSS: x.AdvMSS, Priority: x.Priority, Table: x.Table, Scope: x.Scope,
		}
		var err error
		if route.Dst, err = prefix(x.Dst); err != nil {
			return model.Result{}, err
		}
		out.Routes = append(out.Routes, route)
	}
	return out, nil
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefix(n net.IPNet) (netip.Prefix, error) {
	a, mask := addr(n.IP), n.Mask
	if a.Is4() && len(mask) == net.IPv6len {
		mask = mask[net.IPv6len-net.IPv4len:]
	}
	ones, bits := mask.Size() // 0, 0 if the mask is not contiguous
	if !a.IsValid() || bits != a.BitLen() {
		return netip.Prefix{}, fmt.Errorf("%w: address %v with mask % x", ErrDaemon, n.IP, []byte(n.Mask))
	}
	return netip.PrefixFrom(a, ones), nil
}
