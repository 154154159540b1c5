// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
)

// Attributes of linux/netfilter/nfnetlink_conntrack.h.
const (
	attrTupleOrig, attrTupleReply  = 1, 2
	attrProtoInfo                  = 4
	attrCountersOrig, attrCounters = 9, 10 // of the original and of the reply direction

	tupleIP, tupleProto              = 1, 2
	ip4Src, ip4Dst, ip6Src, ip6Dst   = 1, 2, 3, 4
	protoNumber, protoSrc, protoDst  = 1, 2, 3
	counterPackets, counterBytes     = 1, 2
	protoInfoTCP, protoInfoTCPState  = 1, 1
	netfilterHeader, attributeHeader = 4, 4
)

// decode appends the events of a datagram. It allocates nothing: there are thousands of them a second.
func decode(b []byte, to []Event) []Event {
	for len(b) >= unix.NLMSG_HDRLEN {
		size, kind := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		flags := binary.NativeEndian.Uint16(b[6:])
		if size < unix.NLMSG_HDRLEN+netfilterHeader || size > len(b) {
			break
		}
		e := Event{Kind: New}
		switch {
		case kind == subsystem|msgDelete:
			e.Kind = End
		case kind != subsystem|msgNew:
			e.Kind = ""
		case flags&(unix.NLM_F_CREATE|unix.NLM_F_EXCL) == 0:
			e.Kind = Update
		}
		// An update without a state is of something else, such as a mark.
		if e.Kind != "" && e.parse(b[unix.NLMSG_HDRLEN+netfilterHeader:size]) && (e.Kind != Update || e.State != "") {
			to = append(to, e)
		}
		b = b[min(netlink.Align(size), len(b)):]
	}
	return to
}

// attributes are attributes that are not read yet.
type attributes []byte

// next returns the next attribute; false if there is none.
func (a *attributes) next() (kind uint16, value attributes, ok bool) {
	b := *a
	if len(b) < attributeHeader {
		return 0, nil, false
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < attributeHeader || size > len(b) {
		return 0, nil, false
	}
	*a = b[min(netlink.Align(size), len(b)):]
	return binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER), b[attributeHeader:size], true
}

// parse decodes the attributes of a connection; false if it has no addresses.
func (e *Event) parse(b attributes) bool {
	var unused uint8
	for kind, v, ok := b.next(); ok; kind, v, ok = b.next() {
		switch kind {
		case attrTupleOrig:
			e.Src, e.Dst = v.tuple(&e.Proto)
		case attrTupleReply:
			e.ReplySrc, e.ReplyDst = v.tuple(&unused)
		case attrProtoInfo:
			e.State = v.tcpState()
		case attrCountersOrig:
			e.Orig, e.Counted = v.counters(), true
		case attrCounters:
			e.Reply, e.Counted = v.counters(), true
		}
	}
	return e.Src.Addr().IsValid() && e.Dst.Addr().IsValid()
}

// tuple decodes a direction.
func (a attributes) tuple(proto *uint8) (src, dst netip.AddrPort) {
	var from, to netip.Addr
	var fromPort, toPort uint16
	for kind, v, ok := a.next(); ok; kind, v, ok = a.next() {
		switch kind {
		case tupleIP:
			for kind, w, ok := v.next(); ok; kind, w, ok = v.next() {
				switch {
				case kind == ip4Src && len(w) == 4:
					from = netip.AddrFrom4([4]byte(w))
				case kind == ip4Dst && len(w) == 4:
					to = netip.AddrFrom4([4]byte(w))
				case kind == ip6Src && len(w) == 16:
					from = netip.AddrFrom16([16]byte(w))
				case kind == ip6Dst && len(w) == 16:
					to = netip.AddrFrom16([16]byte(w))
				}
			}
		case tupleProto:
			for kind, w, ok := v.next(); ok; kind, w, ok = v.next() {
				switch {
				case kind == protoNumber && len(w) == 1:
					*proto = w[0]
				case kind == protoSrc && len(w) == 2:
					fromPort = binary.BigEndian.Uint16(w)
				case kind == protoDst && len(w) == 2:
					toPort = binary.BigEndian.Uint16(w)
				}
			}
		}
	}
	return netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)
}

// counters decodes the counters of a direction.
func (a attributes) counters() (c Counters) {
	for kind, v, ok := a.next(); ok; kind, v, ok = a.next() {
		switch kind {
		case counterPackets:
			c.Packets = netlink.BE64(v)
		case counterBytes:
			c.Bytes = netlink.BE64(v)
		}
	}
	return c
}

// tcpState decodes the state of a TCP connection; empty: it is none.
func (a attributes) tcpState() string {
	for kind, v, ok := a.next(); ok; kind, v, ok = a.next() {
		if kind != protoInfoTCP {
			continue
		}
		for kind, w, ok := v.next(); ok; kind, w, ok = v.next() {
			if kind == protoInfoTCPState && len(w) == 1 {
				return stateName(w[0])
			}
		}
	}
	return ""
}

// stateName returns the name of a state of enum tcp_conntrack of linux/netfilter/nf_conntrack_tcp.h.
func stateName(state uint8) string {
	names := [...]string{
		"none", "syn-sent", "syn-recv", "established", "fin-wait", "close-wait", "last-ack", "time-wait", "close", "syn-sent2",
	}
	if int(state) < len(names) {
		return names[state]
	}
	return ""
}
