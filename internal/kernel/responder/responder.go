// SPDX-License-Identifier: Apache-2.0

// Package responder answers ARP requests and neighbor solicitations for addresses that no link has. The kernel's own
// proxy answers for IPv4 only if the route to the address leads over another link.
package responder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/state"
)

// Responder answers on one link.
type Responder struct {
	link  string
	index int
	mac   net.HardwareAddr
	f     *os.File
	// groups is the socket that has joined the multicast groups of IPv6 addresses; -1 without IPv6.
	groups int
	// claimed is called with an address of the Responder that another host announces as its own.
	claimed func(netip.Addr)
	done    chan struct{}

	mu     sync.Mutex
	addrs  map[netip.Addr]bool
	joined map[[16]byte]bool
}

// Open opens a Responder on a link of the process's own namespace. It answers for no address yet. claimed is called, and must
// not block, when another host announces one of its addresses, by a gratuitous ARP or a neighbor advertisement.
func Open(link string, claimed func(netip.Addr)) (*Responder, error) {
	index, mac, err := effect.Link(link)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", link, err)
	}
	f, err := watch.PacketSocket(nil, link, filter())
	if err != nil {
		return nil, fmt.Errorf("requests on %s: %w", link, err)
	}
	groups, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		groups = -1 // the kernel has no IPv6
	}
	r := &Responder{
		link: link, index: index, mac: mac, f: f, groups: groups, claimed: claimed, done: make(chan struct{}), addrs: map[netip.Addr]bool{},
		joined: map[[16]byte]bool{},
	}
	go r.run()
	return r, nil
}

// Close ends it.
func (r *Responder) Close() {
	_ = r.f.Close()
	<-r.done
	if r.groups >= 0 {
		_ = unix.Close(r.groups)
	}
}

// Stale reports whether the link is another one by now, or has another MAC address, or its socket has failed.
func (r *Responder) Stale() bool {
	select {
	case <-r.done:
		return true
	default:
	}
	index, mac, err := effect.Link(r.link)
	return err != nil || index != r.index || mac.String() != r.mac.String()
}

// Set sets the addresses.
func (r *Responder) Set(addrs map[netip.Addr]bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addrs = maps.Clone(addrs)
	want := map[[16]byte]bool{}
	for a := range addrs {
		if a.Is6() {
			want[effect.SolicitedNode(a).As16()] = true
		}
	}
	var errs []error
	for group := range want {
		if !r.joined[group] {
			errs = append(errs, r.member(group, unix.IPV6_JOIN_GROUP))
		}
	}
	for group := range r.joined {
		if !want[group] {
			_ = r.member(group, unix.IPV6_LEAVE_GROUP)
		}
	}
	r.joined = want
	return errors.Join(errs...)
}

// member joins a multicast group, or leaves it: the link receives its frames, and switches that look at MLD pass them.
func (r *Responder) member(group [16]byte, option int) error {
	err := unix.SetsockoptIPv6Mreq(r.groups, unix.IPPROTO_IPV6, option, &unix.IPv6Mreq{Multiaddr: group, Interface: uint32(r.index)})
	if err != nil {
		return fmt.Errorf("multicast group %s on %s: %w", netip.AddrFrom16(group), r.link, err)
	}
	return nil
}

// Announce sends that the addresses are at this link now to all neighbors.
func (r *Responder) Announce(addrs []netip.Addr) error {
	return effect.SendGratuitousARP(nil, []state.Effect{{Link: r.link, Addrs: addrs}})
}

// run answers until the socket is closed.
func (r *Responder) run() {
	defer close(r.done)
	frame := make([]byte, 256)
	for {
		n, err := r.f.Read(frame)
		if errors.Is(err, unix.ENETDOWN) {
			continue // returned once: the link is down, and may come up again
		}
		if err != nil {
			return
		}
		if reply := r.reply(frame[:n]); reply != nil {
			_, _ = r.f.Write(reply) // it is asked again
		}
	}
}

// reply returns the answer to a request, nil if there is none.
func (r *Responder) reply(f []byte) []byte {
	if len(f) < 42 {
		return nil
	}
	from, p := net.HardwareAddr(f[6:12]), f[14:]
	if binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_ARP {
		const request = 1
		sender, target := netip.AddrFrom4([4]byte(p[14:18])), netip.AddrFrom4([4]byte(p[24:28]))
		if sender == target {
			r.claim(target, p[8:14])
			return nil
		}
		if binary.BigEndian.Uint16(p[6:]) != request || !r.has(target) {
			return nil
		}
		return effect.ARPReply(r.mac, from, target, sender)
	}
	const limit, header, solicitation, advertisement = 255, 40, 24, 136
	if len(p) < header+solicitation || p[7] != limit { // RFC 4861, 7.1.1: not from another link
		return nil
	}
	sender, target := netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[header+8:]))
	switch {
	case p[header] == advertisement:
		r.claim(target, from)
		return nil
	case !r.has(target):
		return nil
	case sender.IsUnspecified(): // duplicate address detection
		return effect.Advertisement(r.mac, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, target, netip.IPv6LinkLocalAllNodes(), false)
	}
	return effect.Advertisement(r.mac, from, target, sender, true)
}

// claim reports an address that the host with a MAC address announces.
func (r *Responder) claim(a netip.Addr, mac net.HardwareAddr) {
	if !bytes.Equal(mac, r.mac) && r.has(a) {
		r.claimed(a)
	}
}

func (r *Responder) has(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addrs[a]
}

// filter passes ARP, neighbor solicitations and neighbor advertisements.
func filter() []unix.SockFilter {
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
