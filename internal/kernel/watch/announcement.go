// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// HeardAnnouncement is a received frame that shows that an address is in use on a link: an announcement, or any packet.
type HeardAnnouncement struct {
	// How is "arp", "rarp" or "nd" for an announcement, "ip" for any packet.
	How string
	// MAC is the sender of the frame.
	MAC [6]byte
	// Addr is the address that is announced, or the packet's source; a RARP has none.
	Addr netip.Addr
	// Proto, From and To are set for packets of TCP and UDP; otherwise Proto is 0.
	Proto    uint8
	From, To netip.AddrPort
}

// HearAnnouncements receives the frames that arrive on a link of ns (nil: the process's own namespace), and puts those
// that meant selects into the channel, which holds one and is closed after ctx ends. It reports gratuitous ARP, RARP
// (which a hypervisor sends for its guest) and unsolicited neighbor advertisements; with packets, IP packets as well.
// meant is called from one goroutine.
func HearAnnouncements(
	ctx context.Context, ns *netns.NS, link string, packets bool, meant func(HeardAnnouncement) bool,
) (<-chan HeardAnnouncement, error) {
	f, err := PacketSocket(ns, link, announcementFilter(packets))
	if err != nil {
		return nil, fmt.Errorf("watch: what is said on %s: %w", link, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	out := make(chan HeardAnnouncement, 1)
	go func() {
		defer close(out)
		defer func() { stop(); _ = f.Close() }()
		frame := make([]byte, 256) // the rest of a longer frame is ignored
		for {
			n, err := f.Read(frame)
			if errors.Is(err, unix.ENETDOWN) {
				continue // returned once: the link is down, and may come up again
			}
			if err != nil {
				return // closed
			}
			s, ok := decodeFrame(frame[:n])
			if !ok || s.How == "ip" && !packets || !meant(s) {
				continue
			}
			select {
			case out <- s:
			default:
			}
		}
	}()
	return out, nil
}

// PacketSocket opens a socket for the frames of one link that the filter passes.
func PacketSocket(ns *netns.NS, link string, filter []unix.SockFilter) (*os.File, error) {
	var fd int
	err := ns.Do(func() (err error) {
		// Without a protocol the socket receives nothing until it is bound: no frames of other links, and none before
		// the filter.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "frames of "+link)
	request, err := unix.NewIfreq(link)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
			Len: uint16(len(filter)), Filter: &filter[0],
		})
	}
	if err == nil {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(int32(request.Uint32()))})
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// announcementFilter is the filter: ARP, RARP, neighbor advertisements, and with packets all of IP.
func announcementFilter(packets bool) []unix.SockFilter {
	const (
		load16, load8 = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		equal, accept = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	)
	const refuse, pass = 9, 10 // the indexes of these instructions
	to := func(place, from uint8) uint8 { return place - from - 1 }
	ip := uint8(refuse)
	if packets {
		ip = pass
	}
	return []unix.SockFilter{
		{Code: load16, K: 12},
		{Code: equal, K: unix.ETH_P_ARP, Jt: to(pass, 1)},
		{Code: equal, K: unix.ETH_P_RARP, Jt: to(pass, 2)},
		{Code: equal, K: unix.ETH_P_IP, Jt: to(ip, 3)},
		{Code: equal, K: unix.ETH_P_IPV6, Jf: to(refuse, 4)},
		{Code: load8, K: 20}, // IPv6: next header
		{Code: equal, K: unix.IPPROTO_ICMPV6, Jf: to(ip, 6)},
		{Code: load8, K: 54}, // ICMPv6: type
		{Code: equal, K: 136, Jt: to(pass, 8), Jf: to(ip, 8)},
		{Code: accept, K: 0},
		{Code: accept, K: 256},
	}
}

// decodeFrame decodes a frame.
func decodeFrame(f []byte) (HeardAnnouncement, bool) {
	var s HeardAnnouncement
	if len(f) < 14 {
		return s, false
	}
	s.MAC = [6]byte(f[6:12])
	packet := f[14:]
	switch binary.BigEndian.Uint16(f[12:]) {
	case unix.ETH_P_RARP:
		s.How = "rarp"
		return s, len(packet) >= 28
	case unix.ETH_P_ARP:
		// A gratuitous one is about its sender's own address, as a request or as a reply.
		if len(packet) < 28 || [4]byte(packet[14:18]) != [4]byte(packet[24:28]) || [6]byte(packet[8:14]) != s.MAC {
			return s, false
		}
		s.How, s.Addr = "arp", netip.AddrFrom4([4]byte(packet[14:18]))
		return s, !s.Addr.IsUnspecified()
	case unix.ETH_P_IP:
		if len(packet) < 20 {
			return s, false
		}
		s.How, s.Addr = "ip", netip.AddrFrom4([4]byte(packet[12:16]))
		if first := binary.BigEndian.Uint16(packet[6:])&0x1fff == 0; first { // only the first fragment has ports
			s.ports(packet[9], netip.AddrFrom4([4]byte(packet[16:20])), packet[min(int(packet[0]&15)*4, len(packet)):])
		}
		return s, true
	case unix.ETH_P_IPV6:
		if len(packet) < 40 {
			return s, false
		}
		s.How, s.Addr = "ip", netip.AddrFrom16([16]byte(packet[8:24]))
		if about, is := advertised(packet); is {
			s.How, s.Addr = "nd", about
		}
		s.ports(packet[6], netip.AddrFrom16([16]byte(packet[24:40])), packet[40:])
		return s, true
	}
	return s, false
}

// ports decodes the ports of TCP and UDP.
func (s *HeardAnnouncement) ports(proto uint8, to netip.Addr, rest []byte) {
	if (proto == unix.IPPROTO_TCP || proto == unix.IPPROTO_UDP) && len(rest) >= 4 {
		s.Proto = proto
		s.From = netip.AddrPortFrom(s.Addr, binary.BigEndian.Uint16(rest))
		s.To = netip.AddrPortFrom(to, binary.BigEndian.Uint16(rest[2:]))
	}
}

// advertised returns the target of an unsolicited neighbor advertisement (RFC 4861, 4.4).
func advertised(packet []byte) (netip.Addr, bool) {
	const solicited = 0x40
	if packet[6] != unix.IPPROTO_ICMPV6 || packet[7] != 255 || len(packet) < 64 || packet[40] != 136 ||
		packet[44]&solicited != 0 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom16([16]byte(packet[48:64])), true
}
