// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// The wire format of sock_diag (linux/inet_diag.h).
const (
	sockDiagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	diagRequest      = 56 // struct inet_diag_req_v2
	diagMessage      = 72 // struct inet_diag_msg
	stateListen      = 10 // TCP_LISTEN
	stateUnconnected = 7  // TCP_CLOSE, the state of a UDP socket that is not connected
	attrSkV6Only     = 11 // INET_DIAG_SKV6ONLY
)

// socket is a receiving socket.
type socket struct {
	state.ListeningSocket
	v6only bool
	link   int // the index of the link that it is bound to, or 0
}

// UDPLinks returns the indexes of the links that the UDP sockets of a port and family (AF_INET or AF_INET6) are bound to, in
// a namespace; nil is that of the thread. 0 stands for a socket that is bound to no link.
func UDPLinks(ns *netns.NS, family uint8, port uint16) (links []int, err error) {
	sock, err := netlink.Open(ns, netlink.Options{Protocol: unix.NETLINK_SOCK_DIAG, Datagrams: 1, Size: 64 << 10})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sock.Close()) }()
	all, err := listening(sock, family, unix.IPPROTO_UDP)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Port == port {
			links = append(links, s.link)
		}
	}
	return links, nil
}

// listening lists the sockets of a family and protocol that receive from every peer.
func listening(sock *netlink.Socket, family, protocol uint8) ([]socket, error) {
	b := &netlink.Batch{}
	sock.Begin(b)
	h := make([]byte, diagRequest)
	h[0], h[1] = family, protocol
	states := uint32(1 << stateListen)
	if protocol == unix.IPPROTO_UDP {
		states = 1 << stateUnconnected
	}
	binary.NativeEndian.PutUint32(h[4:], states)
	b.Add(sockDiagByFamily, 0, h)
	var out []socket
	_, err := sock.Dump(b, func(a netlink.Answer) {
		if len(a.Body) < diagMessage || a.Body[0] != family {
			return
		}
		s := socket{}
		s.Port = binary.BigEndian.Uint16(a.Body[4:])
		s.link = int(binary.NativeEndian.Uint32(a.Body[40:]))
		raw := a.Body[8:12]
		if family == unix.AF_INET6 {
			raw = a.Body[8:24]
		}
		s.Addr, _ = netip.AddrFromSlice(raw)
		only := netlink.Find(a.Body[diagMessage:], attrSkV6Only)
		s.v6only = len(only) > 0 && only[0] != 0
		out = append(out, s)
	})
	if errors.Is(err, unix.ENOENT) { // no module for that protocol's sockets: there are none that can be listed
		return nil, fmt.Errorf("sockets of protocol %d cannot be listed: %w", protocol, err)
	}
	return out, err
}
