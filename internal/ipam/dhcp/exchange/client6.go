// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

const (
	serverPort6 = 547
	clientPort6 = 546
	// linkLocalTime is how long the client waits for a usable link-local address.
	linkLocalTime = 4 * time.Second
	// releaseTime is how long the client waits for the response to a release.
	releaseTime = 300 * time.Millisecond
)

// client6 is a DHCPv6 client for one address (RFC 8415).
type client6 struct {
	world Options
	link  Link
	duid  dhcpv6.DUID
	iaid  [4]byte
	sock  *socket
}

func open6(ctx context.Context, ns *netns.NS, l Link, id Identity, w Options) (Client, error) {
	// Each attachment is one client, also after a restart: its DUID is a UUID that is derived from the identity.
	sum := sha256.Sum256([]byte(id.ID))
	duid := &dhcpv6.DUIDUUID{UUID: [16]byte(sum[:16])}
	const version, variant = 8, 2 // custom (RFC 9562)
	duid.UUID[6], duid.UUID[8] = duid.UUID[6]&15|version<<4, duid.UUID[8]&63|variant<<6
	c := &client6{world: w, link: l, duid: duid, iaid: [4]byte(sum[16:20])}
	for waited := time.Duration(0); ; waited += 4 * carrierStep {
		addr, err := linkLocal(ns, l.Name)
		if err == nil {
			if c.sock, err = openUDP6(ns, l, addr); err == nil {
				return c, nil
			}
		}
		if waited >= linkLocalTime || !errors.Is(err, unix.EADDRNOTAVAIL) { // until duplicate address detection has finished
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("interface %q: %w", l.Name, context.Cause(ctx))
		case <-time.After(4 * carrierStep):
		}
	}
}

// linkLocal returns a link's link-local address.
func linkLocal(ns *netns.NS, name string) (found netip.Addr, err error) {
	err = ns.Do(func() error {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return notFound(name, err)
		}
		addrs, err := ifi.Addrs()
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
				found = p.Addr()
				return nil
			}
		}
		return fmt.Errorf("interface %q has no IPv6 link-local address, which DHCPv6 needs: %w", name, unix.EADDRNOTAVAIL)
	})
	return found, err
}

// Close closes the socket.
func (c *client6) Close() error { return c.sock.Close() }

// Acquire solicits servers and requests what the first usable one advertises.
func (c *client6) Acquire(ctx context.Context, want netip.Addr) (Grant, error) {
	begin := c.world.Now()
	end := begin.Add(c.world.ResendTimeout)
	var last error
	for pauses := c.world.rounds(); ctx.Err() == nil && c.world.Now().Before(end); {
		until := c.world.Now().Add(pauses.wait(end))
		solicit := c.message(dhcpv6.MessageTypeSolicit, begin, nil, want)
		offer, why, err := c.exchange(ctx, solicit, until, dhcpv6.MessageTypeAdvertise)
		if err != nil {
			return Grant{}, err
		}
		if last = why; offer == nil {
			continue
		}
		request := c.message(dhcpv6.MessageTypeRequest, begin, offer.Options.ServerID(), addressOf(offer))
		const tries = 3
		for n := 0; n < tries && ctx.Err() == nil; n++ {
			reply, why, err := c.exchange(ctx, request, c.world.Now().Add(min(firstPause<<n, c.world.Timeout)),
				dhcpv6.MessageTypeReply)
			if err != nil {
				return Grant{}, err
			}
			if reply != nil {
				return c.grant(reply)
			}
			if last = why; why != nil {
				break
			}
		}
	}
	return Grant{}, errors.Join(timedOut(ctx, IPv6, c.link), last)
}

// Renew asks the lease's server for more time or, to rebind, every server.
func (c *client6) Renew(ctx context.Context, g Grant, rebind bool) (Grant, error) {
	old, err := parse6(g.Packet)
	if err != nil {
		return g, fmt.Errorf("remembered lease: %w", err)
	}
	kind, server := dhcpv6.MessageTypeRenew, old.Options.ServerID()
	if rebind {
		kind, server = dhcpv6.MessageTypeRebind, nil
	}
	begin := c.world.Now()
	end := begin.Add(c.world.Timeout)
	for pauses := c.world.rounds(); ctx.Err() == nil && c.world.Now().Before(end); {
		m := c.message(kind, begin, server, addressOf(old))
		reply, why, err := c.exchange(ctx, m, c.world.Now().Add(pauses.wait(end)), dhcpv6.MessageTypeReply)
		switch {
		case err != nil:
			return g, err
		case reply != nil:
			return c.grant(reply)
		case why != nil:
			return g, why
		}
	}
	return g, timedOut(ctx, IPv6, c.link)
}

// Release releases a lease. It waits only briefly for the server's response, which does not matter.
func (c *client6) Release(ctx context.Context, g Grant) error {
	old, err := parse6(g.Packet)
	if err != nil {
		return fmt.Errorf("remembered lease: %w", err)
	}
	m := c.message(dhcpv6.MessageTypeRelease, c.world.Now(), old.Options.ServerID(), addressOf(old))
	for range 2 {
		if err := c.send(m); err != nil {
			return err
		}
		heard, err := c.sock.listen(ctx, releaseTime, func(packet []byte) bool {
			a, err := parse6(packet)
			return err == nil && a.TransactionID == m.TransactionID && a.MessageType == dhcpv6.MessageTypeReply
		})
		if heard || err != nil {
			return err
		}
	}
	return nil
}

func (c *client6) message(
	t dhcpv6.MessageType, begin time.Time, server dhcpv6.DUID, addr netip.Addr,
) *dhcpv6.Message {
	m := &dhcpv6.Message{MessageType: t}
	n := c.world.number()
	m.TransactionID = dhcpv6.TransactionID{byte(n >> 16), byte(n >> 8), byte(n)}
	m.AddOption(dhcpv6.OptClientID(c.duid))
	if server != nil {
		m.AddOption(dhcpv6.OptServerID(server))
	}
	const most = 0xffff * 10 * time.Millisecond
	m.AddOption(dhcpv6.OptElapsedTime(min(c.world.Now().Sub(begin), most)))
	ia := &dhcpv6.OptIANA{IaId: c.iaid}
	if addr.IsValid() {
		ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: addr.AsSlice()})
	}
	m.AddOption(ia)
	if t != dhcpv6.MessageTypeRelease {
		m.AddOption(dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList))
	}
	return m
}

func (c *client6) send(m *dhcpv6.Message) error {
	to := &unix.SockaddrInet6{Port: serverPort6, ZoneId: uint32(c.link.Index), Addr: allServers().As16()}
	if err := unix.Sendto(c.sock.fd, m.ToBytes(), 0, to); err != nil {
		return fmt.Errorf("DHCPv6 %s on %s: %w", m.MessageType, c.link.Name, err)
	}
	return nil
}

// allServers is All_DHCP_Relay_Agents_and_Servers.
func allServers() netip.Addr { return netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 13: 1, 15: 2}) }

// exchange sends a message and waits for a response with an address. Without one, why is the error that a server
// returned.
func (c *client6) exchange(
	ctx context.Context, m *dhcpv6.Message, until time.Time, t dhcpv6.MessageType,
) (answer *dhcpv6.Message, why, err error) {
	if err := c.send(m); err != nil {
		return nil, nil, err
	}
	found, err := c.sock.listen(ctx, until.Sub(c.world.Now()), func(packet []byte) bool {
		a, err := parse6(packet)
		if err != nil || a.TransactionID != m.TransactionID || a.MessageType != t ||
			a.Options.ServerID() == nil || !c.mine(a) {
			return false
		}
		if why = refusal(a); why != nil {
			return t == dhcpv6.MessageTypeReply // another server may advertise an address
		}
		answer = a
		return true
	})
	if !found || why != nil {
		return nil, why, err
	}
	return answer, nil, nil
}

func (c *client6) mine(a *dhcpv6.Message) bool {
	id := a.Options.ClientID()
	return id != nil && id.Equal(c.duid)
}

// refusal returns why a response has no address.
func refusal(a *dhcpv6.Message) error {
	said := func(s *dhcpv6.OptStatusCode) error {
		if s == nil || s.StatusCode == iana.StatusSuccess {
			return nil
		}
		return fmt.Errorf("DHCPv6: %w: %s %q", ErrRefused, s.StatusCode, s.StatusMessage)
	}
	if err := said(a.Options.Status()); err != nil {
		return err
	}
	ia := a.Options.OneIANA()
	if ia == nil {
		return fmt.Errorf("DHCPv6: %w: no address", ErrRefused)
	}
	if err := said(ia.Options.Status()); err != nil {
		return err
	}
	addr := ia.Options.OneAddress()
	if addr == nil || addr.ValidLifetime == 0 {
		return fmt.Errorf("DHCPv6: %w: no address", ErrRefused)
	}
	return said(addr.Options.Status())
}

func (c *client6) grant(reply *dhcpv6.Message) (Grant, error) {
	g := Grant{Family: IPv6, Packet: reply.ToBytes(), Bound: c.world.Now()}
	_, err := g.Lease()
	return g, err
}
