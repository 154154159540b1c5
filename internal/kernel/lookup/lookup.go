// SPDX-License-Identifier: Apache-2.0

// Package lookup asks the kernel of a namespace what it would do with a packet: its route, the state of links and
// neighbors, the sockets that receive. It changes nothing but what the kernel keeps of such answers itself.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Namespace is a namespace to be asked.
type Namespace struct {
	ns   *netns.NS
	sock *rtnl.Socket
	read *reader.Reader
}

// Open opens a namespace; nil is the process's own. The caller keeps ns open until Close.
func Open(ns *netns.NS) (*Namespace, error) {
	sock, err := rtnl.Open(ns)
	if err != nil {
		return nil, err
	}
	return &Namespace{ns: ns, sock: sock, read: reader.New(sock)}, nil
}

// Close closes its sockets.
func (n *Namespace) Close() error { return n.sock.Close() }

// Packet is a packet to be routed. In is the interface on which it arrives, empty if it is sent here.
type Packet struct {
	From, To netip.Addr
	In       string
}

// Route asks how a packet is routed. A packet that the kernel refuses has a route with the error's name.
func (n *Namespace) Route(ctx context.Context, p Packet) (state.RouteLookup, error) {
	in := 0
	if p.In != "" {
		f, ok, err := n.read.LinkByAnyName(ctx, p.In)
		switch {
		case err != nil:
			return state.RouteLookup{}, err
		case !ok:
			return state.RouteLookup{Errno: "ENODEV"}, nil
		}
		in = f.Index
	}
	var out state.RouteLookup
	index := 0
	err := n.sock.Query(ctx, []*rtnl.Message{link.RouteFor(p.From, p.To, in)}, func(_ int, body []byte) {
		out, index = link.DecodeRouteLookup(body)
	})
	var refused rtnl.Refusals
	if errors.As(err, &refused) {
		return state.RouteLookup{Errno: unix.ErrnoName(refused[0].Errno)}, nil
	}
	if err != nil || index == 0 {
		return out, err
	}
	f, _, err := n.read.LinkByIndex(ctx, index)
	out.Out = f.Name
	return out, err
}

// Link reads the state of an interface; nil means that there is none of that name.
func (n *Namespace) Link(ctx context.Context, name string) (*state.LinkStatus, error) {
	var out *state.LinkStatus
	var index, master int
	var xdp bool
	err := n.sock.Query(ctx, []*rtnl.Message{link.Get(name)}, func(_ int, body []byte) {
		f, ok := link.Decode(body)
		if !ok || f.Dead() {
			return
		}
		up, carrier := link.DecodeFlags(body)
		out, index, master = status(f.Link), f.Index, f.MasterIndex
		out.Up, out.Carrier = up, carrier
		xdp = hasXDP(body[unix.SizeofIfInfomsg:])
	})
	if err != nil || out == nil {
		return nil, err
	}
	if out.Programs, err = n.programs(ctx, index, xdp); err != nil || master == 0 {
		return out, err
	}
	f, _, err := n.read.LinkByIndex(ctx, master)
	out.Master = f.Name
	return out, err
}

func status(l state.Link) *state.LinkStatus {
	out := &state.LinkStatus{Name: l.Name, Kind: string(l.Kind), MTU: l.MTU, MAC: l.MAC}
	if a := l.VXLAN; a != nil {
		out.VNI, out.UDPPort, out.Local = int(a.VNI), int(a.UDPPort()), a.Local
	}
	if a := l.IPIP; a != nil {
		out.Local = a.Local
	}
	return out
}

// Neighbor reads the neighbor entry of an address; nil means that there is none, or no such interface.
func (n *Namespace) Neighbor(ctx context.Context, name string, ip netip.Addr) (*state.NeighborStatus, error) {
	f, ok, err := n.read.LinkByAnyName(ctx, name)
	if err != nil || !ok {
		return nil, err
	}
	var out *state.NeighborStatus
	// The additional request for the link ensures an answer.
	batch := []*rtnl.Message{link.GetNeigh(state.Neigh{Link: name, IP: ip}, f.Index), link.GetIndex(f.Index)}
	err = n.sock.Query(ctx, batch, func(i int, body []byte) {
		if i != 0 {
			return
		}
		if e, ok := link.DecodeNeigh(body); ok {
			out = &state.NeighborStatus{MAC: e.MAC, State: link.NeighState(body)}
		}
	})
	return out, err
}

// The kernel asks for a neighbor once a second, and the answer comes at once.
const (
	resolveTime  = 300 * time.Millisecond
	resolvePause = 5 * time.Millisecond
)

// Resolve is like Neighbor, but the kernel asks for the address if it has no entry. An entry that is incomplete still has
// no answer after a while.
func (n *Namespace) Resolve(ctx context.Context, name string, ip netip.Addr) (*state.NeighborStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	have, err := n.Neighbor(ctx, name, ip)
	if err != nil || have != nil && have.MAC != (state.MAC{}) {
		return have, err
	}
	f, ok, err := n.read.LinkByAnyName(ctx, name)
	if err != nil || !ok {
		return nil, err
	}
	entry := state.Neigh{Link: name, IP: ip}
	if err := n.sock.Query(ctx, []*rtnl.Message{link.ResolveNeigh(entry, f.Index)}, func(int, []byte) {}); err != nil {
		return nil, fmt.Errorf("resolve %s on %s: %w", ip, name, err)
	}
	for {
		next, err := n.Neighbor(ctx, name, ip)
		switch {
		case err != nil && ctx.Err() != nil:
			return have, nil
		case err != nil || next != nil && next.MAC != (state.MAC{}):
			return next, err
		}
		have = next
		select {
		case <-ctx.Done():
			return have, nil
		case <-time.After(resolvePause):
		}
	}
}

// FDB reads where a VXLAN device sends frames for a MAC address.
func (n *Namespace) FDB(ctx context.Context, name string, mac state.MAC) ([]state.FDBStatus, error) {
	f, ok, err := n.read.LinkByAnyName(ctx, name)
	if err != nil || !ok {
		return nil, err
	}
	all, err := n.read.FDBs(ctx, f.Index)
	var out []state.FDBStatus
	for _, e := range all {
		if e.MAC == mac {
			out = append(out, state.FDBStatus{Dst: e.Dst})
		}
	}
	return out, err
}

// NeighborTable reads the size of the neighbor table of IPv4 or IPv6.
func (n *Namespace) NeighborTable(ctx context.Context, six bool) (out state.NeighborTableStatus, err error) {
	err = n.sock.Dump(ctx, link.GetNeighTable(six), func(body []byte) {
		if t, ok := link.DecodeNeighTable(body); ok {
			out = t
		}
	})
	if err != nil {
		return out, err
	}
	all, err := n.read.Neighs(ctx, 0, false)
	for _, e := range all {
		if e.Permanent && e.IP.Is6() == six {
			out.Permanent++
		}
	}
	return out, err
}

// Conntrack returns the size of the namespace's connection table and its limit, zeros without connection tracking.
func (n *Namespace) Conntrack() (count, limit int, err error) {
	files := sysctl.New(n.ns)
	defer files.Close()
	const countName, limitName = "net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max"
	all, err := files.Read([]string{countName, limitName})
	if err != nil || all[countName].Missing || all[limitName].Missing {
		return 0, 0, err
	}
	if count, err = strconv.Atoi(strings.TrimSpace(all[countName].Text)); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", countName, err)
	}
	if limit, err = strconv.Atoi(strings.TrimSpace(all[limitName].Text)); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", limitName, err)
	}
	return count, limit, nil
}

// Addrs returns all addresses of the namespace, without link-local ones and the loopback's.
func (n *Namespace) Addrs(ctx context.Context) ([]netip.Addr, error) {
	all, err := n.read.Addrs(ctx, 0)
	var out []netip.Addr
	for _, a := range all {
		if ip := a.Prefix.Addr(); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			out = append(out, ip)
		}
	}
	return out, err
}

// LinkOf returns the interface that has an address, empty if none has it.
func (n *Namespace) LinkOf(ctx context.Context, ip netip.Addr) (string, error) {
	all, err := n.read.Addrs(ctx, 0)
	for _, a := range all {
		if a.Prefix.Addr() == ip {
			f, _, err := n.read.LinkByIndex(ctx, a.Index)
			return f.Name, err
		}
	}
	return "", err
}

// Listening returns the sockets that receive packets to an address and a port; protocol is IPPROTO_TCP, IPPROTO_UDP or
// IPPROTO_SCTP.
func (n *Namespace) Listening(
	ctx context.Context, protocol uint8, to netip.Addr, port uint16,
) (found []state.ListeningSocket, err error) {
	sock, err := netlink.Open(n.ns, netlink.Options{Protocol: unix.NETLINK_SOCK_DIAG, Datagrams: 1, Size: 64 << 10})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sock.Close()) }()
	families := []uint8{unix.AF_INET6} // sockets of ::, which receive IPv4, too
	if to.Is4() {
		families = append(families, unix.AF_INET)
	}
	for _, family := range families {
		all, err := listening(sock, family, protocol)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			if s.Port == port && receives(s, family, to) {
				found = append(found, s.ListeningSocket)
			}
		}
	}
	return slices.Compact(found), ctx.Err()
}

// receives reports whether a socket's address receives packets to an address.
func receives(s socket, family uint8, to netip.Addr) bool {
	switch {
	case s.Addr.Unmap() == to:
		return true
	case !s.Addr.IsUnspecified():
		return false
	case to.Is4() && family == unix.AF_INET6:
		return !s.v6only
	}
	return true
}
