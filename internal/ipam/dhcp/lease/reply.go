// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"net"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// reply is the answer to Allocate in the form of the reference's library (types/100.Result). An IPAM result has no
// interfaces.
type reply struct {
	CNIVersion string
	IPs        []*replyIP
	Routes     []*replyRoute
	DNS        replyDNS
}

type replyIP struct {
	Interface *int
	Address   net.IPNet
	Gateway   net.IP
}

type replyRoute struct {
	Dst                   net.IPNet
	GW                    net.IP
	MTU, AdvMSS, Priority int
	Table, Scope          *int
}

type replyDNS struct {
	Nameservers []string
	Domain      string
	Search      []string
	Options     []string
}

func toReply(r model.Result) reply {
	out := reply{CNIVersion: "1.1.0", DNS: replyDNS(r.DNS)}
	for _, ip := range r.IPs {
		out.IPs = append(out.IPs, &replyIP{Address: toNet(ip.Address), Gateway: toIP(ip.Gateway)})
	}
	for _, x := range r.Routes {
		out.Routes = append(out.Routes, &replyRoute{
			Dst: toNet(x.Dst), GW: toIP(x.GW), MTU: x.MTU, AdvMSS: x.AdvMSS, Priority: x.Priority, Table: x.Table,
			Scope: x.Scope,
		})
	}
	return out
}

func toIP(a netip.Addr) net.IP {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

func toNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
