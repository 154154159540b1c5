// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/guest/dhcp4"
	"github.com/weft-net/weft/internal/guest/dhcp6"
	"github.com/weft-net/weft/internal/guest/ndp"
	"github.com/weft-net/weft/internal/model"
)

const (
	maxPacket   = 9000
	clientPort4 = 68
	// pace is the minimum time between two packets of a guest. A guest that floods the socket only fills its buffer; it
	// does not make this process work more.
	pace = time.Millisecond
)

// read reads packets until the socket is closed. It continues if the link is down for a while.
func read(conn net.PacketConn, take func(packet []byte, from net.Addr)) error {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := conn.ReadFrom(buf)
		switch {
		case errors.Is(err, unix.ENETDOWN):
		case err != nil:
			return err
		default:
			take(buf[:n], from)
		}
		time.Sleep(pace)
	}
}

// dhcp4Loop answers DHCP. A guest that has the pod's own address gets all replies by broadcast: a packet to that address
// would not leave the pod.
func dhcp4Loop(g model.GuestConfig, conn net.PacketConn, log *slog.Logger) func(context.Context) error {
	out := newSender(conn, log, "DHCP answer")
	return func(context.Context) error {
		err := read(conn, func(packet []byte, _ net.Addr) {
			reply, to := dhcp4.Answer(g, packet)
			if reply == nil {
				return
			}
			if g.MAC != "" {
				to = dhcp4.Broadcast()
			}
			out.send(reply, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, clientPort4)))
		})
		return fmt.Errorf("DHCP: %w", err)
	}
}

func dhcp6Loop(g model.GuestConfig, conn net.PacketConn, log *slog.Logger) func(context.Context) error {
	out := newSender(conn, log, "DHCPv6 answer")
	return func(context.Context) error {
		err := read(conn, func(packet []byte, from net.Addr) {
			reply, at := dhcp6.Answer(g, packet), addrOf(from)
			if reply == nil || !at.IsLinkLocalUnicast() {
				return
			}
			port := from.(*net.UDPAddr).AddrPort().Port()
			out.send(reply, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, port)))
		})
		return fmt.Errorf("DHCPv6: %w", err)
	}
}

// raLoop sends router advertisements at intervals and to each solicitation.
func raLoop(g model.GuestConfig, conn net.PacketConn, log *slog.Logger) func(context.Context) error {
	out := newSender(conn, log, "advertisement")
	advertise := func(to net.Addr) { out.send(ndp.Advertisement(g, ndp.Lifetime), to) }
	return func(ctx context.Context) error {
		raw, ok := conn.(*net.IPConn)
		if !ok {
			return errors.New("advertisements: the socket is not a raw one")
		}
		ctx, stop := context.WithCancel(ctx)
		var group sync.WaitGroup
		defer group.Wait()
		defer stop()
		group.Go(func() {
			due := time.NewTicker(ndp.Interval * time.Second)
			defer due.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-due.C:
					advertise(allNodes())
				}
			}
		})
		buf, control := make([]byte, maxPacket), make([]byte, 128)
		for {
			time.Sleep(pace)
			n, rest, _, from, err := raw.ReadMsgIP(buf, control)
			if errors.Is(err, unix.ENETDOWN) {
				continue
			}
			if err != nil {
				return fmt.Errorf("advertisements: %w", err)
			}
			switch ip := addrOf(from); {
			case !ndp.Solicited(buf[:n], ip, hops(control[:rest])):
			case ip.IsLinkLocalUnicast():
				advertise(&net.IPAddr{IP: ip.AsSlice()})
			case ip.IsUnspecified():
				advertise(allNodes())
			}
		}
	}
}

// allNodes is the all-nodes multicast address; the socket is bound to the link.
func allNodes() net.Addr {
	return &net.IPAddr{IP: ndp.AllNodes().AsSlice()}
}

// hops returns a packet's hop limit, or -1 if the control message does not have it.
func hops(control []byte) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return -1
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT && len(m.Data) >= 4 {
			return int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return -1
}
