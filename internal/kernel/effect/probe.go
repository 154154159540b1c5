// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

const (
	// probeCount is how often an address is probed (PROBE_NUM of RFC 5227, 1.1). The probes and the last wait for an
	// answer divide the effect's timeout evenly.
	probeCount = 3
	// probeStep bounds how long a canceled context is not noticed.
	probeStep = 50 * time.Millisecond
)

var errNoCarrier = errors.New("the link has no carrier, or is down: no other host can be asked")

// Probe performs effects of the kind ProbeAddrs in ns, at once: it sends ARP probes (RFC 5227, 2.1.1) and neighbor
// solicitations from the unspecified address (RFC 4862, 5.4.2), and receives what shows that another host has an
// address, or probes for it too. It returns a DuplicateError for the first of these. It fails, too, if nothing could be
// sent.
func Probe(ctx context.Context, ns *netns.NS, effects []state.Effect) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var once sync.Once
	var first error
	for _, e := range effects {
		all.Go(func() {
			if err := probeLink(ctx, ns, e); err != nil {
				once.Do(func() { first = err }) // the others are canceled
				cancel()
			}
		})
	}
	all.Wait()
	return first
}

// prober probes on one link.
type prober struct {
	fd    int
	link  string
	index int
	mac   net.HardwareAddr
	addrs []netip.Addr
}

func probeLink(ctx context.Context, ns *netns.NS, e state.Effect) error {
	p := prober{link: e.Link, addrs: e.Addrs}
	err := ns.Do(func() (err error) {
		// Without a protocol the socket receives nothing until it is bound.
		p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("probe on %s: %w", e.Link, err)
	}
	defer func() { go func() { _ = unix.Close(p.fd) }() }() // see SendGratuitousARP
	if err := p.bind(); err != nil {
		return fmt.Errorf("probe on %s: %w", e.Link, err)
	}
	return p.run(ctx, time.Duration(e.Milliseconds)*time.Millisecond)
}

// bind receives the link's ARP and IPv6 frames, those to all nodes too: the answers to solicitations.
func (p *prober) bind() (err error) {
	if p.index, p.mac, err = linkOf(p.fd, p.link); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return err
	}
	filter := probeFilter()
	if err := unix.SetsockoptSockFprog(p.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return err
	}
	for _, a := range p.addrs {
		groups := []net.HardwareAddr{}
		if a.Is6() {
			groups = append(groups, groupMAC(netip.IPv6LinkLocalAllNodes()), groupMAC(SolicitedNode(a)))
		}
		for _, group := range groups {
			member := unix.PacketMreq{Ifindex: int32(p.index), Type: unix.PACKET_MR_MULTICAST, Alen: 6}
			copy(member.Address[:], group)
			if err := unix.SetsockoptPacketMreq(p.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &member); err != nil {
				return err
			}
		}
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	return unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: p.index})
}

// run waits for a carrier, which a network card has seconds after it is up, then sends the probes and receives during
// the timeout.
func (p *prober) run(ctx context.Context, timeout time.Duration) error {
	for end := time.Now().Add(dadPatience); ; {
		if err := p.carrier(); !errors.Is(err, errNoCarrier) || time.Now().After(end) {
			break // the first probe fails, too
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("probe on %s: %w", p.link, context.Cause(ctx))
		case <-time.After(dadStep):
		}
	}
	begin := time.Now()
	sent, failed := 0, error(nil)
	for i := range probeCount {
		if err := p.send(); err != nil {
			failed = err
		} else {
			sent++
		}
		if err := p.receiveUntil(ctx, begin.Add(timeout*time.Duration(i+1)/probeCount)); err != nil {
			return err
		}
	}
	if sent == 0 {
		return fmt.Errorf("probe on %s: %w", p.link, failed)
	}
	return nil
}

// carrier returns errNoCarrier if the kernel would drop a frame without an error.
func (p *prober) carrier() error {
	request, err := unix.NewIfreq(p.link)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(p.fd, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	if request.Uint16()&unix.IFF_RUNNING == 0 {
		return errNoCarrier
	}
	return nil
}

// send sends one probe for each address.
func (p *prober) send() error {
	if err := p.carrier(); err != nil {
		return err
	}
	for _, a := range p.addrs {
		frame := arpProbe(p.mac, a)
		if a.Is6() {
			frame = solicitation(p.mac, a)
		}
		if err := unix.Sendto(p.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.index, Halen: 6}); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	return nil
}

// receiveUntil receives until a moment, and at least what has arrived.
func (p *prober) receiveUntil(ctx context.Context, end time.Time) error {
	frame := make([]byte, 256)
	for {
		left := time.Until(end)
		wait := min(max(left, 0), probeStep) + time.Millisecond - 1 // whole milliseconds, and no less than is left
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(wait.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("probe on %s: %w", p.link, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("probe on %s: %w", p.link, context.Cause(ctx))
		}
		if n > 0 {
			size, _, err := unix.Recvfrom(p.fd, frame, 0)
			if err != nil {
				continue // of the link, which went down; reported once
			}
			if duplicate := p.duplicate(frame[:size]); duplicate != nil {
				return duplicate
			}
		} else if left <= 0 {
			return nil
		}
	}
}

// duplicate returns an error if a frame shows that another host has one of the addresses.
func (p *prober) duplicate(f []byte) error {
	addr, mac, probing := inUse(f)
	if probing && mac.String() == p.mac.String() {
		return nil // the own probe, sent back by a switch
	}
	for _, a := range p.addrs {
		if a == addr {
			return &DuplicateError{Addr: a, Link: p.link, MAC: mac, Probing: probing}
		}
	}
	return nil
}

// inUse returns the address that the sender of an ARP packet, a neighbor advertisement or a neighbor solicitation has,
// or probes for.
func inUse(f []byte) (addr netip.Addr, mac net.HardwareAddr, probing bool) {
	const ethernet, arpSize, ip6, hopLimit = 14, 28, 40, 255
	const neighborSolicitation, neighborAdvertisement, nd = 135, 136, 24
	if len(f) < ethernet+arpSize {
		return addr, nil, false
	}
	typ, from, p := binary.BigEndian.Uint16(f[12:]), net.HardwareAddr(f[6:12]), f[ethernet:]
	if typ == unix.ETH_P_ARP {
		sender, target := netip.AddrFrom4([4]byte(p[14:18])), netip.AddrFrom4([4]byte(p[24:28]))
		if sender.IsUnspecified() {
			return target, net.HardwareAddr(p[8:14]), true
		}
		return sender, net.HardwareAddr(p[8:14]), false
	}
	if typ != unix.ETH_P_IPV6 || len(p) < ip6+nd || p[6] != unix.IPPROTO_ICMPV6 || p[7] != hopLimit {
		return addr, nil, false
	}
	source, target := netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[ip6+8:ip6+24]))
	switch {
	case p[ip6] == neighborAdvertisement:
		return target, from, false
	case p[ip6] == neighborSolicitation && source.IsUnspecified():
		return target, from, true
	case p[ip6] == neighborSolicitation:
		return source, from, false
	}
	return addr, nil, false
}

// arpProbe returns the frame of an ARP probe: a request without the sender's address, so that no host stores it.
func arpProbe(mac net.HardwareAddr, a netip.Addr) []byte {
	f := arp(mac, a)
	copy(f[14+14:], []byte{0, 0, 0, 0})
	return f
}

// solicitation returns the frame of a neighbor solicitation from the unspecified address. It has no option with the
// sender's MAC (RFC 4861, 4.3).
func solicitation(mac net.HardwareAddr, a netip.Addr) []byte {
	group := SolicitedNode(a)
	icmp := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, a.AsSlice()...)
	binary.BigEndian.PutUint16(icmp[2:], checksum(netip.IPv6Unspecified(), group, icmp))
	f := append(append([]byte{}, groupMAC(group)...), mac...)
	f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(icmp)), unix.IPPROTO_ICMPV6, 255)
	f = append(append(f, netip.IPv6Unspecified().AsSlice()...), group.AsSlice()...)
	return append(f, icmp...)
}

// SolicitedNode returns an address's solicited-node multicast group (RFC 4291, 2.7.1).
func SolicitedNode(a netip.Addr) netip.Addr {
	b, group := a.As16(), [16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff}
	copy(group[13:], b[13:])
	return netip.AddrFrom16(group)
}

// groupMAC returns the MAC address of an IPv6 multicast group (RFC 2464, 7).
func groupMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return append(net.HardwareAddr{0x33, 0x33}, b[12:]...)
}

// probeFilter passes ARP, neighbor solicitations and advertisements.
func probeFilter() []unix.SockFilter {
	const load16, load8, equal = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_ABS,
		unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	return []unix.SockFilter{
		{Code: load16, K: 12},
		{Code: equal, K: unix.ETH_P_ARP, Jt: 6},
		{Code: equal, K: unix.ETH_P_IPV6, Jf: 6},
		{Code: load8, K: 20}, // next header
		{Code: equal, K: unix.IPPROTO_ICMPV6, Jf: 4},
		{Code: load8, K: 54}, // type
		{Code: equal, K: 135, Jt: 1},
		{Code: equal, K: 136, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 256},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}
