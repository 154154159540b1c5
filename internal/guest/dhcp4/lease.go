// SPDX-License-Identifier: Apache-2.0

package dhcp4

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// reply offers or acknowledges the lease, or answers DHCPINFORM with options only. The manifest's own options come last
// and are left out if the packet would be longer than the guest accepts.
func (l lease) reply(q query, kind byte) []byte {
	r := head(q)
	informed := kind == inform
	if informed {
		kind = ack
		copy(r[ciaddr:], q.client.AsSlice())
	} else {
		copy(r[yiaddr:], l.Address.Addr().AsSlice())
		if q.client.IsValid() && kind == ack {
			copy(r[ciaddr:], q.client.AsSlice())
		}
	}
	r = option(r, optType, []byte{kind})
	r = option(r, optServer, l.Server.AsSlice())
	if !informed {
		r = option(r, optLease, binary.BigEndian.AppendUint32(nil, leaseSeconds))
	}
	r = option(r, optMask, net.CIDRMask(l.Address.Bits(), l.Address.Addr().BitLen()))
	for _, o := range l.options() {
		if limit := max(q.size, minSize) - headers; len(r)+len(o.value)+2*(1+len(o.value)/maxOption)+1 > limit {
			continue
		}
		r = option(r, o.code, o.value)
	}
	return finish(r)
}

type opt struct {
	code  byte
	value []byte
}

// options returns the lease's options, the most important first.
func (l lease) options() []opt {
	out := []opt{{optClasslessRoutes, routes(l.Routes)}}
	if l.Router.IsValid() {
		out = append(out, opt{optRouter, l.Router.AsSlice()})
	}
	if l.MTU >= 68 && l.MTU < 1<<16 {
		out = append(out, opt{optMTU, binary.BigEndian.AppendUint16(nil, uint16(l.MTU))})
	}
	out = append(out,
		opt{optDNS, addrs(l.DNS)}, opt{optHostname, text(l.Hostname)}, opt{optDomain, text(l.Domain)},
		opt{optSearch, search(l.Search)},
		opt{optTFTP, text(l.Options.TFTPServerName)}, opt{optBootFile, text(l.Options.BootFileName)}, opt{
			optNTP, addrs(l.Options.NTPServers),
		})
	for _, o := range l.Options.Private {
		const first, last = 224, 254
		if o.Option >= first && o.Option <= last {
			out = append(out, opt{o.Option, text(o.Value)})
		}
	}
	return out
}

func text(s string) []byte { return []byte(s[:min(len(s), maxOption)]) }

// routes encodes classless static routes (option 121, RFC 3442): each destination in as few bytes as possible and its
// gateway, which is 0.0.0.0 for on-link destinations.
func routes(list []model.GuestRoute) []byte {
	var out []byte
	for _, r := range list {
		if !r.Dst.IsValid() || !r.Dst.Addr().Is4() {
			continue
		}
		gw := r.GW
		if !gw.Is4() {
			gw = netip.IPv4Unspecified()
		}
		dst := r.Dst.Masked().Addr().As4()
		out = append(out, byte(r.Dst.Bits()))
		out = append(out, dst[:(r.Dst.Bits()+7)/8]...)
		out = append(out, gw.AsSlice()...)
	}
	return out
}
