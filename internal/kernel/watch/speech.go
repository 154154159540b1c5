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

// Speech is what a machine says that is new on a wire: that it is there.
type Speech struct {
	// How is "arp", "rarp" or "nd" for an announcement, "ip" for any packet.
	How string
	// MAC is who sends the frame.
	MAC [6]byte
	// Addr is the address that is announced, or the packet's source; a RARP names none.
	Addr netip.Addr
	// Proto, From and To are those of a packet of TCP or UDP; else Proto is 0.
	Proto    uint8
	From, To netip.AddrPort
}

// Hear listens on a link of ns (nil: the process's own namespace) to what comes in over it, and puts what is meant into
// the channel, which holds one and is closed after ctx ends. Announcements are gratuitous ARP, RARP (which a hypervisor
// sends for its guest) and unsolicited neighbor advertisements; packets has packets with any source count as well.
// meant is called by one goroutine.
func Hear(
	ctx context.Context, ns *netns.NS, link string, packets bool, meant func(Speech) bool,
) (<-chan Speech, error) {
	f, err := packetSocket(ns, link, hearing(packets))
	if err != nil {
		return nil, fmt.Errorf("watch: what is said on %s: %w", link, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	out := make(chan Speech, 1)
	go func() {
		defer close(out)
		defer func() { stop(); _ = f.Close() }()
		frame := make([]byte, 256) // the rest of a longer one is not looked at
		for {
			n, err := f.Read(frame)
			if errors.Is(err, unix.ENETDOWN) {
				continue // said once: the link is down, and may come up again
			}
			if err != nil {
				return // closed
			}
			s, ok := heard(frame[:n])
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

// packetSocket is a socket that gets the frames of one link that the filter lets through.
func packetSocket(ns *netns.NS, link string, filter []unix.SockFilter) (*os.File, error) {
	var fd int
	err := ns.Do(func() (err error) {
		// Without a protocol it hears nothing until it is bound: no frame of another link, nor one before the filter.
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

// hearing is the filter: ARP, RARP, neighbor advertisements, and all of IP where packets are wanted.
func hearing(packets bool) []unix.SockFilter {
	const (
		load16, load8 = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		equal, give   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	)
	const refuse, pass = 9, 10 // their places below
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
		{Code: load8, K: 20}, // what the IPv6 header says is next
		{Code: equal, K: unix.IPPROTO_ICMPV6, Jf: to(ip, 6)},
		{Code: load8, K: 54}, // the type
		{Code: equal, K: 136, Jt: to(pass, 8), Jf: to(ip, 8)},
		{Code: give, K: 0},
		{Code: give, K: 256},
	}
}

// heard reads a frame.
func heard(f []byte) (Speech, bool) {
	var s Speech
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
		// A gratuitous one is about its sender's own address, as a request or as an answer.
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
		if first := binary.BigEndian.Uint16(packet[6:])&0x1fff == 0; first { // only that fragment has ports
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

// ports reads those of TCP and UDP.
func (s *Speech) ports(proto uint8, to netip.Addr, rest []byte) {
	if (proto == unix.IPPROTO_TCP || proto == unix.IPPROTO_UDP) && len(rest) >= 4 {
		s.Proto = proto
		s.From = netip.AddrPortFrom(s.Addr, binary.BigEndian.Uint16(rest))
		s.To = netip.AddrPortFrom(to, binary.BigEndian.Uint16(rest[2:]))
	}
}

// advertised is the address that an unsolicited neighbor advertisement is about (RFC 4861, 4.4).
func advertised(packet []byte) (netip.Addr, bool) {
	const solicited = 0x40
	if packet[6] != unix.IPPROTO_ICMPV6 || packet[7] != 255 || len(packet) < 64 || packet[40] != 136 ||
		packet[44]&solicited != 0 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom16([16]byte(packet[48:64])), true
}
