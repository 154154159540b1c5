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
	world World
	link  Link
	id    Identity
	sock  *socket
}

func open4(ns *netns.NS, l Link, id Identity, w World) (Client, error) {
	if len(l.MAC) != 6 {
		return nil, fmt.Errorf("interface %q has the hardware address %q: DHCPv4 needs an Ethernet one", l.Name, l.MAC)
	}
	sock, err := openPackets(ns, l)
	if err != nil {
		return nil, err
	}
	return &client4{world: w, link: l, id: id, sock: sock}, nil
}

// Close closes the socket.
func (c *client4) Close() error { return c.sock.Close() }

// Acquire discovers servers and requests what the first one offers, again and again until one grants it.
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
		offer, _, err := c.ask(ctx, discover, broadcast4(), next, dhcpv4.MessageTypeOffer)
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
		want = netip.Addr{} // refused, or silence: the next round asks for anything
		if _, _, err := c.hear(ctx, next, discover.TransactionID, none4); err != nil {
			return Grant{}, err
		}
	}
	return Grant{}, ended(ctx, IPv4, c.link)
}

// request takes an offer. No grant and no error: begin anew.
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
		ack, from, err := c.ask(ctx, m, broadcast4(), until, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak)
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
		ack, from, err := c.ask(ctx, m, to, c.world.Now().Add(pauses.wait(end)), dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak)
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
	return g, ended(ctx, IPv4, c.link)
}

// Release gives a lease back. The protocol has no answer to that.
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

// message is the frame of every message: who speaks, and what is provided and asked for.
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

// clientID is option 61: of no type, and cut to what an option holds.
func clientID(id string) []byte {
	const most = 254
	if len(id) > most {
		id = id[:most]
	}
	return append([]byte{0}, id...)
}

// target is where a message goes.
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

// server is where a lease's server is: behind the hardware address that its last answer came from.
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

// ask sends a message and waits for an answer of one of the types; nil when none came.
func (c *client4) ask(
	ctx context.Context, m *dhcpv4.DHCPv4, to target, until time.Time, types ...dhcpv4.MessageType,
) (*dhcpv4.DHCPv4, net.HardwareAddr, error) {
	if err := c.send(m, to); err != nil {
		return nil, nil, err
	}
	return c.hear(ctx, until, m.TransactionID, func(a *dhcpv4.DHCPv4) bool {
		for _, t := range types {
			if a.MessageType() == t && (t == dhcpv4.MessageTypeNak || usable4(a)) {
				return true
			}
		}
		return false
	})
}

// usable4 tells whether an answer gives an address and says by whom.
func usable4(a *dhcpv4.DHCPv4) bool {
	return a.YourIPAddr.To4() != nil && !a.YourIPAddr.IsUnspecified() && a.ServerIdentifier().To4() != nil
}

// hear waits for an answer to this client's transaction.
func (c *client4) hear(
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
