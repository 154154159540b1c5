// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// ifaProto is IFA_PROTO (linux/if_addr.h); x/sys does not name it.
const ifaProto = 11

// FoundAddr is an address as the kernel has it.
type FoundAddr struct {
	state.Addr
	Index int
	// Own means that the kernel added it itself: a link-local address, or one from a router advertisement.
	Own bool
	// Tentative is true while duplicate address detection runs; Failed when it found a duplicate.
	Tentative, Failed bool
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func ifaddr(fam, bits uint8, index int) []byte {
	b := make([]byte, unix.SizeofIfAddrmsg)
	b[0], b[1] = fam, bits
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return b
}

// LinkLocal reports whether an address is an IPv6 link-local one.
func (f FoundAddr) LinkLocal() bool {
	return f.Prefix.Addr().Is6() && f.Prefix.Addr().IsLinkLocalUnicast()
}

// AddAddr requests an address on the link of that index.
func AddAddr(a state.Addr, index int) *rtnl.Message {
	m := addrMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "add", a, index)
	ip := a.Prefix.Addr()
	if ip.Is4() && a.Prefix.Bits() < 31 && !a.Peer.IsValid() && !a.NoBroadcast {
		m.Attr(unix.IFA_BROADCAST, broadcast(a.Prefix))
	}
	flags := uint32(0)
	if a.NoDAD && ip.Is6() {
		flags |= unix.IFA_F_NODAD
	}
	if a.NoPrefixRoute {
		flags |= unix.IFA_F_NOPREFIXROUTE
	}
	if flags != 0 {
		m.Uint32(unix.IFA_FLAGS, flags)
	}
	return m
}

// DelAddr requests the deletion of an address.
func DelAddr(a state.Addr, index int) *rtnl.Message {
	return addrMessage(unix.RTM_DELADDR, 0, "delete", a, index).Forgiving(unix.EADDRNOTAVAIL, unix.ENODEV)
}

func addrMessage(kind, flags uint16, verb string, a state.Addr, index int) *rtnl.Message {
	ip, far := a.Prefix.Addr(), a.Prefix.Addr()
	bits := a.Prefix.Bits()
	if a.Peer.IsValid() {
		far, bits = a.Peer.Addr(), a.Peer.Bits()
	}
	body := ifaddr(family(ip), uint8(bits), index)
	if a.HostScope {
		body[3] = unix.RT_SCOPE_HOST
	}
	m := rtnl.New(kind, flags, verb, a, body)
	m.Attr(unix.IFA_LOCAL, ip.AsSlice())
	m.Attr(unix.IFA_ADDRESS, far.AsSlice())
	return m
}

func broadcast(p netip.Prefix) []byte {
	b := p.Addr().As4()
	host := uint32(1)<<(32-p.Bits()) - 1
	return binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(b[:])|host)
}

// ListAddrs requests the addresses of one link, or of all when index is 0.
func ListAddrs(index int) *rtnl.Message {
	return rtnl.New(unix.RTM_GETADDR, 0, "read", rtnl.Name("addresses"), ifaddr(0, 0, index)).Forgiving(unix.ENODEV)
}

// DecodeAddr decodes RTM_NEWADDR.
func DecodeAddr(body []byte) (FoundAddr, bool) {
	if len(body) < unix.SizeofIfAddrmsg {
		return FoundAddr{}, false
	}
	f := FoundAddr{Index: int(int32(binary.NativeEndian.Uint32(body[4:])))}
	bits, flags := int(body[1]), uint32(body[2])
	var local, far netip.Addr
	proto, wide := byte(0), false
	for kind, data := range netlink.Attrs(body[unix.SizeofIfAddrmsg:]) {
		switch kind {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(data)
		case unix.IFA_ADDRESS:
			far, _ = netip.AddrFromSlice(data)
		case unix.IFA_BROADCAST:
			wide = true
		case unix.IFA_FLAGS:
			flags = number(data)
		case ifaProto:
			proto = data[0]
		}
	}
	if !local.IsValid() {
		local, far = far, netip.Addr{}
	}
	if !local.IsValid() {
		return FoundAddr{}, false
	}
	f.Prefix = netip.PrefixFrom(local, bits)
	if far.IsValid() && far != local {
		f.Peer = netip.PrefixFrom(far, bits)
		f.Prefix = netip.PrefixFrom(local, local.BitLen())
	}
	f.NoBroadcast = !wide && local.Is4() && !f.Peer.IsValid() && f.Prefix.Bits() < 31
	f.NoPrefixRoute = flags&unix.IFA_F_NOPREFIXROUTE != 0
	f.Tentative = flags&unix.IFA_F_TENTATIVE != 0
	f.Failed = flags&unix.IFA_F_DADFAILED != 0
	f.Own = flags&unix.IFA_F_PERMANENT == 0 || proto >= 1 && proto <= 3 // added by the kernel: lo, router, link-local
	return f, true
}

// ListGroups requests the IPv6 multicast groups that a link has joined.
func ListGroups(index int) *rtnl.Message {
	return rtnl.New(unix.RTM_GETMULTICAST, 0, "read", rtnl.Name("multicast groups"),
		ifaddr(unix.AF_INET6, 0, index)).Forgiving(unix.ENODEV)
}

// DecodeGroup decodes RTM_NEWMULTICAST.
func DecodeGroup(body []byte) (group netip.Addr, index int, ok bool) {
	if len(body) < unix.SizeofIfAddrmsg {
		return group, 0, false
	}
	for kind, data := range netlink.Attrs(body[unix.SizeofIfAddrmsg:]) {
		if kind == unix.IFA_MULTICAST {
			group, ok = netip.AddrFromSlice(data)
		}
	}
	return group, int(int32(binary.NativeEndian.Uint32(body[4:]))), ok
}
