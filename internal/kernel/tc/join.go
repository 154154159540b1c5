// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// key compares four bytes of a packet, at an offset from its network header.
type key struct {
	off         int
	mask, value uint32
}

// joinFilter is a filter of a join: a packet that matches all keys is kept, or redirected to a link. A priority has one
// protocol.
type joinFilter struct {
	priority, protocol uint16
	keys               []key
	to                 int
}

// The priorities of a join's filters, by protocol; the one for all other packets is last.
const (
	joinARP = priority - 3 + iota
	joinFour
	joinSix
	joinAll

	classOfKept = 0x10001
	u32Class    = 1
)

// joinFilters returns the filters of packets that arrive from a guest.
func joinFilters(j state.Join, to int) []joinFilter {
	var out []joinFilter
	keep := func(priority, protocol uint16, keys ...key) {
		out = append(out, joinFilter{priority: priority, protocol: protocol, keys: keys})
	}
	arp := func(keys ...key) { keep(joinARP, unix.ETH_P_ARP, append([]key{{4, 0xffff, 1}}, keys...)...) }
	four := func(keys ...key) { keep(joinFour, unix.ETH_P_IP, keys...) }
	six := func(keys ...key) { keep(joinSix, unix.ETH_P_IPV6, keys...) }
	if j.ProxySubnet.IsValid() {
		const all = 1<<32 - 1
		out = append(out, joinFilter{joinARP, unix.ETH_P_ARP, []key{{24, all, word(j.GuestAddr)}}, to})
		arp(key{24, all &^ uint32(all>>j.ProxySubnet.Bits()), word(j.ProxySubnet.Masked().Addr())})
	}
	for _, ip := range j.LocalAddrs {
		if ip.Is4() {
			arp(key{24, 0xffffffff, word(ip)})
			four(append([]key{{16, 0xffffffff, word(ip)}}, dhcp4()...)...)
			continue
		}
		six(append([]key{{4, 0xff00, 58 << 8}}, address(24, ip)...)...)
		six(append([]key{{4, 0xff00, 17 << 8}, {40, 0xffff, 547}}, address(24, ip)...)...)
		six(append([]key{{4, 0xff00, 58 << 8}, {40, 0xff << 24, 135 << 24}}, address(48, ip)...)...)
	}
	if j.DHCP4 {
		four(append([]key{{16, 0xffffffff, 0xffffffff}}, dhcp4()...)...)
	}
	if j.DHCP6 {
		six(key{4, 0xff00, 17 << 8}, key{24, 0xffff0000, 0xff020000}, key{40, 0xffff, 547})
	}
	if j.RS {
		six(key{4, 0xff00, 58 << 8}, key{40, 0xff << 24, 133 << 24})
	}
	return append(out, all(to))
}

// all has no key: it also matches packets that are too short for one.
func all(to int) joinFilter { return joinFilter{joinAll, unix.ETH_P_ALL, nil, to} }

// dhcp4 matches UDP, a first fragment after a header without options, to port 67.
func dhcp4() []key {
	return []key{{8, 0xff0000, 17 << 16}, {0, 0xff << 24, 0x45 << 24}, {4, 0x1fff, 0}, {20, 0xffff, 67}}
}

func word(ip netip.Addr) uint32 { return binary.BigEndian.Uint32(ip.AsSlice()) }

func address(off int, ip netip.Addr) []key {
	var out []key
	b := ip.As16()
	for i := 0; i < len(b); i += 4 {
		out = append(out, key{off + i, 0xffffffff, binary.BigEndian.Uint32(b[i:])})
	}
	return out
}

func (p joinFilter) info() uint32 {
	return uint32(p.priority)<<16 | uint32(bits.ReverseBytes16(p.protocol))
}

func (p joinFilter) sel() []byte {
	sel := make([]byte, 16, 16+16*len(p.keys))
	sel[0], sel[2] = 1, byte(len(p.keys)) // TC_U32_TERMINAL
	for _, k := range p.keys {
		sel = binary.BigEndian.AppendUint32(sel, k.mask)
		sel = binary.BigEndian.AppendUint32(sel, k.value)
		sel = binary.NativeEndian.AppendUint32(sel, uint32(k.off))
		sel = binary.NativeEndian.AppendUint32(sel, 0)
	}
	return sel
}

func (p joinFilter) message(j state.Join, index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add filter of", j,
		header(index, 0, ingressHandle, p.info()))
	m.String(unix.TCA_KIND, "u32")
	m.Nest(unix.TCA_OPTIONS, func() {
		m.Attr(u32Sel, p.sel())
		if p.to == 0 {
			m.Uint32(u32Class, classOfKept)
			return
		}
		mirred(m, p.to)
	})
	return m
}

// Join requests the filters that join a tap and a link, by their indexes.
func Join(j state.Join, tap, link int) []*rtnl.Message {
	out := []*rtnl.Message{
		newIngress(ingressOf(j.Link), link), all(tap).message(j, link), newIngress(ingressOf(j.Tap), tap),
	}
	for _, p := range joinFilters(j, link) {
		out = append(out, p.message(j, tap))
	}
	return out
}

func ingressOf(link string) state.Qdisc { return state.Qdisc{Link: link, Kind: state.Ingress} }

// DeleteJoin requests the deletion of a join's filters on a link.
func DeleteJoin(j state.Join, index int) []*rtnl.Message {
	var out []*rtnl.Message
	for _, p := range []joinFilter{
		{priority: joinARP, protocol: unix.ETH_P_ARP},
		{priority: joinFour, protocol: unix.ETH_P_IP},
		{priority: joinSix, protocol: unix.ETH_P_IPV6},
		all(0),
	} {
		m := rtnl.New(unix.RTM_DELTFILTER, 0, "delete filters of", j, header(index, 0, ingressHandle, p.info()))
		out = append(out, m.Forgiving(unix.ENOENT, unix.EINVAL, unix.ENODEV))
	}
	return out
}

// EndIngress requests the deletion of the ingress qdisc that Join added to a link.
func EndIngress(link string, index int) *rtnl.Message { return DeleteIngress(ingressOf(link), index) }

// Filter is a filter of the kernel's, or of a join, in a comparable form.
type Filter string

// Joined returns the filters that a join has on the tap, and on the link.
func Joined(j state.Join, tap, link int) (onTap, onLink []Filter) {
	for _, p := range joinFilters(j, link) {
		onTap = append(onTap, filter(p.info(), p.sel(), p.to))
	}
	p := all(tap)
	return onTap, []Filter{filter(p.info(), p.sel(), p.to)}
}

func filter(info uint32, sel []byte, to int) Filter {
	return Filter(fmt.Sprintf("%08x %x to %d", info, sel, to))
}

// DecodeJoined decodes RTM_NEWTFILTER; ours means that it has the priority of a join's.
func DecodeJoined(body []byte) (f Filter, ours, ok bool) {
	if len(body) < headerLen {
		return "", false, false
	}
	info := binary.NativeEndian.Uint32(body[16:])
	ours = info>>16 >= joinARP && info>>16 <= joinAll
	var sel []byte
	to, is := 0, ""
	for kind, data := range netlink.Attrs(body[headerLen:]) {
		if kind == unix.TCA_KIND {
			is = text(data)
		}
		if kind != unix.TCA_OPTIONS {
			continue
		}
		for kind, data := range netlink.Attrs(data) {
			switch {
			case is == bpfKind && kind == bpfName:
				f = ProgramFilter(text(data))
			case kind == u32Sel:
				sel = bytes.Clone(data)
			case kind == u32Act:
				to = redirectOf(data)
			}
		}
	}
	if is == bpfKind {
		return f, ours, f != ""
	}
	if ours && sel == nil { // the hash table of our filters
		return "", true, false
	}
	return filter(info, sel, to), ours, true
}
