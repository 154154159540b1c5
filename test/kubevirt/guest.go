// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
)

// Reply is a message of a DHCP server: its type, the address, and its options in hexadecimal.
type Reply struct {
	Kind    string
	Address string
	Options map[int]string
}

// Replies are the replies to a guest: by DHCP, to a request for another address, and by DHCPv6.
type Replies struct {
	Offer, Ack, Other *Reply
	Advertise, Reply  *Reply
}

const patience = 3 * time.Second

// askDHCP acts as a guest behind a tap. Replies that do not arrive are omitted.
func askDHCP(tap, mac string) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	f, err := open(tap)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := &guestTap{f: f, mac: hw}
	var said Replies
	err = errors.Join(w.exchange4(&said), w.exchange6(&said))
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(said))
}

// until passes each frame to a function until that returns true, or until the timeout.
func (w *guestTap) until(send func() error, content func(f frame) bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := send(); err != nil {
			return err
		}
		for pause := time.Now().Add(patience / 4); ; {
			f, err := w.receive(pause)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			if content(f) {
				return nil
			}
		}
	}
	return nil
}

func (w *guestTap) exchange4(said *Replies) error {
	exchange := func(m *dhcpv4.DHCPv4, into **Reply) (answer *dhcpv4.DHCPv4, err error) {
		err = w.until(func() error { return w.send4(m.ToBytes()) }, func(f frame) bool {
			got, err := dhcpv4.FromBytes(f.payload)
			if f.port != 68 || err != nil || got.TransactionID != m.TransactionID {
				return false
			}
			answer, *into = got, told4(got)
			return true
		})
		return answer, err
	}
	discover, err := dhcpv4.NewDiscovery(w.mac)
	if err != nil {
		return err
	}
	discover.SetBroadcast()
	offer, err := exchange(discover, &said.Offer)
	if offer == nil || err != nil {
		return err
	}
	request, err := dhcpv4.NewRequestFromOffer(offer, dhcpv4.WithBroadcast(true))
	if err != nil {
		return err
	}
	if _, err := exchange(request, &said.Ack); err != nil {
		return err
	}
	other, err := dhcpv4.NewInform(w.mac, net.IPv4zero, dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest),
		dhcpv4.WithBroadcast(true),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(192, 0, 2, 77))))
	if err != nil {
		return err
	}
	_, err = exchange(other, &said.Other)
	return err
}

func told4(m *dhcpv4.DHCPv4) *Reply {
	a := &Reply{Kind: m.MessageType().String(), Address: m.YourIPAddr.String(), Options: map[int]string{}}
	for code, value := range m.Options {
		a.Options[int(code)] = hex.EncodeToString(value)
	}
	return a
}

func (w *guestTap) exchange6(said *Replies) error {
	exchange := func(m *dhcpv6.Message, into **Reply) (answer *dhcpv6.Message, err error) {
		err = w.until(func() error { return w.send6(m.ToBytes()) }, func(f frame) bool {
			got, err := dhcpv6.MessageFromBytes(f.payload)
			if f.port != 546 || err != nil || got.TransactionID != m.TransactionID {
				return false
			}
			answer, *into = got, told6(got)
			return true
		})
		return answer, err
	}
	solicit, err := dhcpv6.NewSolicit(w.mac)
	if err != nil {
		return err
	}
	advertise, err := exchange(solicit, &said.Advertise)
	if advertise == nil || err != nil {
		return err
	}
	request, err := dhcpv6.NewRequestFromAdvertise(advertise)
	if err != nil {
		return err
	}
	_, err = exchange(request, &said.Reply)
	return err
}

func told6(m *dhcpv6.Message) *Reply {
	a := &Reply{Kind: m.MessageType.String(), Options: map[int]string{}}
	for _, o := range m.Options.Options {
		switch o.Code() {
		case dhcpv6.OptionClientID:
		case dhcpv6.OptionIANA:
			if na := m.Options.OneIANA(); na != nil && na.Options.OneAddress() != nil {
				at := na.Options.OneAddress()
				a.Address = at.IPv6Addr.String()
				a.Options[int(o.Code())] = fmt.Sprint(at.PreferredLifetime, at.ValidLifetime)
			}
		default:
			a.Options[int(o.Code())] = hex.EncodeToString(o.ToBytes())
		}
	}
	return a
}

// own returns the guest's link-local address.
func (w *guestTap) own() netip.Addr {
	m := w.mac
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}
