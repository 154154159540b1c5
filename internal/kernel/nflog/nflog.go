// SPDX-License-Identifier: Apache-2.0

// Package nflog receives the packets that rules with "log group N" log in one network namespace: the prefix of the rule
// and the beginning of the packet. Without a listener the kernel logs nothing.
package nflog

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// Constants of linux/netfilter/nfnetlink_log.h.
const (
	subsystem                   = unix.NFNL_SUBSYS_ULOG << 8
	msgPacket, msgConfig        = 0, 1
	cfgCmd, cfgMode             = 1, 2
	cmdBind, modePacket         = 1, 2
	attrPayload, attrPrefix     = 9, 10
	protoTCP, protoUDP          = 6, 17
	protoSCTP, protoICMP, icmp6 = 132, 1, 58
)

// snap is how much of a packet is received: headers. The kernel sends several at once, in less than 8 KiB.
const snap, most = 96, 16 << 10

// Packet is a logged packet.
type Packet struct {
	Prefix string
	// Proto is the number of the transport protocol; the ports are 0 if it has none, or in later fragments.
	Proto    uint8
	From, To netip.AddrPort
	// First: it may be the first packet of a connection. Others are TCP segments that are no SYN.
	First bool
}

// Listen opens a socket in ns (nil: the process's own namespace) and calls f for each packet logged to the group, until
// ctx ends or the Listener is closed; then the group is free for another listener.
func Listen(ctx context.Context, ns *netns.NS, group uint16, f func(Packet)) (*netlink.Listener, error) {
	var bind, mode netlink.Batch
	configure(&bind, group, cfgCmd, []byte{cmdBind})
	configure(&mode, group, cfgMode, append(binary.BigEndian.AppendUint32(nil, snap), modePacket, 0))
	l, err := netlink.Listen(ctx, ns, netlink.Subscription{
		Protocol: unix.NETLINK_NETFILTER, Size: most, Requests: []*netlink.Batch{&bind, &mode},
	}, func(_ *netlink.Listener, d netlink.Datagram) {
		each(d.Data, f) // lost packets are not reported
	})
	if err != nil {
		return nil, fmt.Errorf("nflog: group %d: %w", group, err)
	}
	return l, nil
}

// configure writes a message about the group with one attribute.
func configure(b *netlink.Batch, group, kind uint16, data []byte) {
	b.Netfilter(subsystem|msgConfig, 0, unix.AF_UNSPEC, unix.NFNETLINK_V0, group)
	b.Attr(kind, data)
}

// each calls f for the packets of a datagram.
func each(b []byte, f func(Packet)) {
	netlink.Messages(b, func(a netlink.Answer) {
		if a.Kind != subsystem|msgPacket {
			return
		}
		if _, body, ok := a.Netfilter(); ok {
			if p, ok := parse(body); ok {
				f(p)
			}
		}
	})
}

func parse(b []byte) (p Packet, ok bool) {
	for kind, v := range netlink.Attrs(b) {
		switch kind {
		case attrPayload:
			ok = p.read(v)
		case attrPrefix:
			p.Prefix = netlink.String(v)
		}
	}
	return p, ok
}

// ParsePacket decodes the headers of a packet, from its IP header.
func ParsePacket(b []byte) (p Packet, ok bool) {
	ok = p.read(b)
	return p, ok
}

// read decodes the headers of a packet. It does not search for ports after extension headers of IPv6.
func (p *Packet) read(b []byte) bool {
	var src, dst []byte
	var rest []byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4 && len(b) >= int(b[0]&15)*4:
		p.Proto, src, dst, rest = b[9], b[12:16], b[16:20], b[int(b[0]&15)*4:]
		if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			rest = nil // not the first fragment
		}
	case len(b) >= 40 && b[0]>>4 == 6:
		p.Proto, src, dst, rest = b[6], b[8:24], b[24:40], b[40:]
	default:
		return false
	}
	var sport, dport uint16
	if (p.Proto == protoTCP || p.Proto == protoUDP || p.Proto == protoSCTP) && len(rest) >= 4 {
		sport, dport = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
	}
	const flags, syn, ack = 13, 2, 16
	p.First = p.Proto != protoTCP || len(rest) > flags && rest[flags]&(syn|ack) == syn
	from, _ := netip.AddrFromSlice(src)
	to, _ := netip.AddrFromSlice(dst)
	p.From, p.To = netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport)
	return true
}

// String prints the packet, as in "tcp SOURCE > DESTINATION".
func (p Packet) String() string {
	switch p.Proto {
	case protoTCP:
		return fmt.Sprintf("tcp %s > %s", p.From, p.To)
	case protoUDP:
		return fmt.Sprintf("udp %s > %s", p.From, p.To)
	case protoSCTP:
		return fmt.Sprintf("sctp %s > %s", p.From, p.To)
	case protoICMP, icmp6:
		return fmt.Sprintf("icmp %s > %s", p.From.Addr(), p.To.Addr())
	}
	return fmt.Sprintf("protocol %d %s > %s", p.Proto, p.From.Addr(), p.To.Addr())
}
