// SPDX-License-Identifier: Apache-2.0

// Package nflog hears what rules with "log group N" say, in one network namespace: the prefix of the rule and the beginning of
// the packet. Where nobody listens, the kernel says nothing.
package nflog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// The words of linux/netfilter/nfnetlink_log.h.
const (
	subsystem                   = unix.NFNL_SUBSYS_ULOG << 8
	msgPacket, msgConfig        = 0, 1
	cfgCmd, cfgMode             = 1, 2
	cmdBind, modePacket         = 1, 2
	attrPayload, attrPrefix     = 9, 10
	protoTCP, protoUDP          = 6, 17
	protoSCTP, protoICMP, icmp6 = 132, 1, 58
)

// snap is how much of a packet is wanted: headers. The kernel tells of several at once, in less than 8 KiB.
const snap, most = 96, 16 << 10

// Packet is one that a rule logged.
type Packet struct {
	Prefix string
	// Proto is the number of the transport protocol; the ports are 0 where it has none, or they are not in the first fragment.
	Proto    uint8
	From, To netip.AddrPort
}

// Listener listens to a group.
type Listener struct {
	file *os.File
	done chan struct{}
}

// Done is closed when nothing is heard any more.
func (l *Listener) Done() <-chan struct{} { return l.done }

// Close ends it: the group is another's to take then. What was heard already may still be told.
func (l *Listener) Close() { _ = l.file.Close() }

// Listen opens a socket in ns (nil: the process's own namespace) and calls f for each packet logged to the group, until ctx
// ends or the Listener is closed.
func Listen(ctx context.Context, ns *netns.NS, group uint16, f func(Packet)) (*Listener, error) {
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("nflog: socket: %w", err)
	}
	if err := bind(fd, group); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("nflog: group %d: %w", group, err)
	}
	l := &Listener{os.NewFile(uintptr(fd), "nflog"), make(chan struct{})}
	stop := context.AfterFunc(ctx, l.Close)
	go func() {
		defer close(l.done)
		defer func() { stop(); l.Close() }()
		buf := make([]byte, most)
		for {
			n, err := l.file.Read(buf)
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // what is lost is lost: it was a log
				return
			}
			each(buf[:max(n, 0)], f)
		}
	}()
	return l, nil
}

// bind asks for the group's packets and waits for the kernel's word.
func bind(fd int, group uint16) error {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	mode := binary.BigEndian.AppendUint32(nil, snap)
	for _, attr := range [][]byte{attribute(cfgCmd, []byte{cmdBind}), attribute(cfgMode, append(mode, modePacket, 0))} {
		b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+4+len(attr)))
		b = binary.NativeEndian.AppendUint16(b, subsystem|msgConfig)
		b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
		b = append(b, make([]byte, 8)...)
		b = append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0)
		b = append(binary.BigEndian.AppendUint16(b, group), attr...)
		if _, err := unix.Write(fd, b); err != nil {
			return err
		}
		// The kernel answers while it is written to; what it logs meanwhile comes behind.
		buf := make([]byte, 4<<10)
		n, err := unix.Read(fd, buf)
		if err != nil {
			return err
		}
		if n >= unix.NLMSG_HDRLEN+4 && binary.NativeEndian.Uint16(buf[4:]) == unix.NLMSG_ERROR {
			if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(buf[unix.NLMSG_HDRLEN:]))); errno != 0 {
				return errno
			}
		}
	}
	return nil
}

func attribute(typ uint16, v []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(v)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), v...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// each hands on the packets of a datagram.
func each(b []byte, f func(Packet)) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return
		}
		typ, body := binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:size]
		b = b[min((size+3)&^3, len(b)):]
		if typ != subsystem|msgPacket || len(body) < 4 {
			continue
		}
		if p, ok := parse(body[4:]); ok {
			f(p)
		}
	}
}

func parse(b []byte) (p Packet, ok bool) {
	for len(b) >= 4 {
		size, typ := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
		if size < 4 || size > len(b) {
			break
		}
		switch v := b[4:size]; typ {
		case attrPayload:
			ok = p.read(v)
		case attrPrefix:
			p.Prefix = string(bytes.TrimRight(v, "\x00"))
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return p, ok
}

// read reads the headers of a packet. Behind extension headers of IPv6 no ports are looked for.
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
	from, _ := netip.AddrFromSlice(src)
	to, _ := netip.AddrFromSlice(dst)
	p.From, p.To = netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport)
	return true
}

// String is the packet as people write it.
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
