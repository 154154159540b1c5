// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/weft-net/weft/internal/netns"
)

// client4 is a DHCPv4 client (RFC 2131).
type client4 struct {
	world Options
	link  Link
	id    Identity
	sock  *socket
}

func open4(ns *netns.NS, l Link, id Identity, w Options) (Client, error) {
	if len(l.MAC) != 6 {
		return nil, fmt.Errorf("interface %q has the MAC address %q: DHCPv4 needs an Ethernet one", l.Name, l.MAC)
	}
	sock, err := openPackets(ns, l)
	if err != nil {
		return nil, err
	}
	return &client4{world: w, link: l, id: id, sock: sock}, nil
}

// Close closes the socket.
func (c *client4) Close() error { return c.sock.Close() }

// Acquire discovers servers and requests what the first one offers, repeatedly until a server grants it.
func (c *client4) Acquire(ctx context.Context, want netip.Addr) (Grant, error) {
	begin := c.world.Now()
	end := begin.Add(c.world.ResendTimeout)
	for pauses := c.world.rounds(); ctx.Err() == nil && c.world.Now().Before(end); {
		discover, err := c.message(dhcpv4.MessageTypeDiscover, begin)
		if err != nil {
			return Grant{}, err
		}
		if want.IsValid() {
			discover.UpdateOption(dhcpv4.OptRequestedIPAddress(want.AsSlice()))
		}
		next := c.world.Now().Add(pauses.wait(end))
		offer, _, err := c.exchange(ctx, discover, broadcast4(), next, dhcpv4.MessageTypeOffer)
		if err != nil {
			return Grant{}, err
		}
		if offer == nil {
			continue
		}
		g, err := c.request(ctx, offer, begin, end)
		if err != nil || len(g.Packet) > 0 {
			return g, err
		}
		want = netip.Addr{} // refused, or no response: the next round requests any address
		if _, _, err := c.receive(ctx, next, discover.TransactionID, none4); err != nil {
			return Grant{}, err
		}
	}
	return Grant{}, timedOut(ctx, IPv4, c.link)
}

// request accepts an offer. Neither a grant nor an error: start again.
func (c *client4) request(ctx context.Context, offer *dhcpv4.DHCPv4, begin, end time.Time) (Grant, error) {
	m, err := c.message(dhcpv4.MessageTypeRequest, begin)
	if err != nil {
		return Grant{}, err
	}
	m.TransactionID = offer.TransactionID
	m.UpdateOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr))
	m.UpdateOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier()))
	const tries = 3
	for pauses, n := c.world.rounds(), 0; n < tries && ctx.Err() == nil; n++ {
		until := c.world.Now().Add(pauses.wait(end))
		ack, from, err := c.exchange(ctx, m, broadcast4(), until, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak)
		switch {
		case err != nil:
			return Grant{}, err
		case ack == nil:
			continue
		case ack.MessageType() == dhcpv4.MessageTypeNak:
			return Grant{}, nil
		}
		return c.grant(ack, from)
	}
	return Grant{}, nil
}

// Renew asks the lease's server for more time or, to rebind, every server.
func (c *client4) Renew(ctx context.Context, g Grant, rebind bool) (Grant, error) {
	old, err := dhcpv4.FromBytes(g.Packet)
	if err != nil {
		return g, fmt.Errorf("remembered lease: %w", err)
	}
	begin := c.world.Now()
	to := broadcast4()
	if !rebind {
		to = c.server(old, g)
	}
	to.from, _ = netip.AddrFromSlice(old.YourIPAddr.To4())
	end := begin.Add(c.world.Timeout)
	for pauses := c.world.rounds(); ctx.Err() == nil && c.world.Now().Before(end); {
		m, err := c.message(dhcpv4.MessageTypeRequest, begin)
		if err != nil {
			return g, err
		}
		m.ClientIPAddr = old.YourIPAddr
		ack, from, err := c.exchange(ctx, m, to, c.world.Now().Add(pauses.wait(end)), dhcpv4.MessageTypeAck,
			dhcpv4.MessageTypeNak)
		switch {
		case err != nil:
			return g, err
		case ack == nil:
			continue
		case ack.MessageType() == dhcpv4.MessageTypeNak:
			return g, fmt.Errorf("DHCPv4 on %s: %w %s: %q", c.link.Name, ErrRefused, old.YourIPAddr, ack.Message())
		}
		return c.grant(ack, from)
	}
	return g, timedOut(ctx, IPv4, c.link)
}

// Release releases a lease. The protocol has no response to a release.
func (c *client4) Release(_ context.Context, g Grant) error {
	old, err := dhcpv4.FromBytes(g.Packet)
	if err != nil {
		return fmt.Errorf("remembered lease: %w", err)
	}
	m, err := c.release(old)
	if err != nil {
		return err
	}
	to := c.server(old, g)
	to.from, _ = netip.AddrFromSlice(old.YourIPAddr.To4())
	return c.send(m, to)
}

func (c *client4) release(old *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	m, err := c.message(dhcpv4.MessageTypeRelease, c.world.Now())
	if err != nil {
		return nil, err
	}
	m.ClientIPAddr = old.YourIPAddr
	m.SetUnicast()
	m.Options.Del(dhcpv4.OptionParameterRequestList)
	m.UpdateOption(dhcpv4.OptServerIdentifier(old.ServerIdentifier()))
	return m, nil
}

// message returns the common part of every message: the client's identity, and the provided and requested options.
func (c *client4) message(t dhcpv4.MessageType, begin time.Time) (*dhcpv4.DHCPv4, error) {
	var xid dhcpv4.TransactionID
	binary.BigEndian.PutUint32(xid[:], c.world.number())
	m, err := dhcpv4.New(dhcpv4.WithTransactionID(xid), dhcpv4.WithHwAddr(c.link.MAC), dhcpv4.WithMessageType(t),
		dhcpv4.WithBroadcast(c.id.Broadcast), dhcpv4.WithGeneric(dhcpv4.OptionClientIdentifier, clientID(c.id.ID)))
	if err != nil {
		return nil, fmt.Errorf("DHCPv4 message: %w", err)
	}
	const most = 1<<16 - 1
	m.NumSeconds = uint16(min(c.world.Now().Sub(begin)/time.Second, most))
	for _, o := range c.id.Provide {
		m.UpdateOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(o.Code), o.Value))
	}
	if len(c.id.Request) > 0 {
		m.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionParameterRequestList, c.id.Request))
	}
	return m, nil
}

// clientID returns option 61, without a type, truncated to an option's maximum length.
func clientID(id string) []byte {
	const most = 254
	if len(id) > most {
		id = id[:most]
	}
	return append([]byte{0}, id...)
}

// target is the destination of a message.
type target struct {
	mac      net.HardwareAddr
	from, to netip.Addr
}

func broadcast4() target {
	return target{
		mac: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, from: netip.IPv4Unspecified(),
		to: netip.AddrFrom4([4]byte{255, 255, 255, 255}),
	}
}

// server returns the address of a lease's server, with the MAC address of its last answer.
func (c *client4) server(old *dhcpv4.DHCPv4, g Grant) target {
	to := broadcast4()
	if server, ok := netip.AddrFromSlice(old.ServerIdentifier().To4()); ok {
		to.to = server
	}
	if len(g.From) == len(to.mac) {
		to.mac = g.From
	}
	return to
}

func (c *client4) send(m *dhcpv4.DHCPv4, to target) error {
	if _, err := c.sock.file.Write(frame4(c.link.MAC, to.mac, to.from, to.to, m.ToBytes())); err != nil {
		return fmt.Errorf("DHCPv4 %s on %s: %w", m.MessageType(), c.link.Name, err)
	}
	return nil
}

func none4(*dhcpv4.DHCPv4) bool { return false }

// exchange sends a message and waits for a response of one of the types; nil if none arrives.
func (c *client4) exchange(
	ctx context.Context, m *dhcpv4.DHCPv4, to target, until time.Time, types ...dhcpv4.MessageType,
) (*dhcpv4.DHCPv4, net.HardwareAddr, error) {
	if err := c.send(m, to); err != nil {
		return nil, nil, err
	}
	return c.receive(ctx, until, m.TransactionID, func(a *dhcpv4.DHCPv4) bool {
		for _, t := range types {
			if a.MessageType() == t && (t == dhcpv4.MessageTypeNak || usable4(a)) {
				return true
			}
		}
		return false
	})
}

// usable4 reports whether a response has an address and the server's identifier.
func usable4(a *dhcpv4.DHCPv4) bool {
	return a.YourIPAddr.To4() != nil && !a.YourIPAddr.IsUnspecified() && a.ServerIdentifier().To4() != nil
}

// receive waits for a response to this client's transaction.
func (c *client4) receive(
	ctx context.Context, until time.Time, xid dhcpv4.TransactionID, wanted func(*dhcpv4.DHCPv4) bool,
) (answer *dhcpv4.DHCPv4, from net.HardwareAddr, err error) {
	found, err := c.sock.listen(ctx, until.Sub(c.world.Now()), func(packet []byte) bool {
		body, sender, err := parse4(packet)
		if err != nil {
			return false
		}
		a, err := dhcpv4.FromBytes(body)
		if err != nil || a.OpCode != dhcpv4.OpcodeBootReply || a.TransactionID != xid ||
			!bytes.Equal(a.ClientHWAddr, c.link.MAC) {
			return false
		}
		answer, from = a, sender
		return wanted(a)
	})
	if !found {
		return nil, nil, err
	}
	return answer, from, nil
}

func (c *client4) grant(ack *dhcpv4.DHCPv4, from net.HardwareAddr) (Grant, error) {
	g := Grant{Family: IPv4, Packet: ack.ToBytes(), From: from, Bound: c.world.Now()}
	_, err := g.Lease()
	return g, err
}
