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

// Answer is one of a DHCP server's: what it is, the address that it gives, and its options, in hexadecimal.
type Answer struct {
	Kind    string
	Address string
	Options map[int]string
}

// Answers are what a guest was told: by DHCP, after it asked for another address than its own, and by DHCPv6.
type Answers struct {
	Offer, Ack, Other *Answer
	Advertise, Reply  *Answer
}

const patience = 3 * time.Second

// ask is a guest behind a tap. What nobody answers is left out.
func ask(tap, mac string) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	f, err := open(tap)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := &wire{f: f, mac: hw}
	var said Answers
	err = errors.Join(w.ask4(&said), w.ask6(&said))
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(said))
}

// until calls what looks at each frame, until it is content or patience is at its end.
func (w *wire) until(say func() error, content func(f frame) bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := say(); err != nil {
			return err
		}
		for pause := time.Now().Add(patience / 4); ; {
			f, err := w.hear(pause)
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

func (w *wire) ask4(said *Answers) error {
	exchange := func(m *dhcpv4.DHCPv4, into **Answer) (answer *dhcpv4.DHCPv4, err error) {
		err = w.until(func() error { return w.say4(m.ToBytes()) }, func(f frame) bool {
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

func told4(m *dhcpv4.DHCPv4) *Answer {
	a := &Answer{Kind: m.MessageType().String(), Address: m.YourIPAddr.String(), Options: map[int]string{}}
	for code, value := range m.Options {
		a.Options[int(code)] = hex.EncodeToString(value)
	}
	return a
}

func (w *wire) ask6(said *Answers) error {
	exchange := func(m *dhcpv6.Message, into **Answer) (answer *dhcpv6.Message, err error) {
		err = w.until(func() error { return w.say6(m.ToBytes()) }, func(f frame) bool {
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

func told6(m *dhcpv6.Message) *Answer {
	a := &Answer{Kind: m.MessageType.String(), Options: map[int]string{}}
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

// own is the guest's link-local address.
func (w *wire) own() netip.Addr {
	m := w.mac
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}
