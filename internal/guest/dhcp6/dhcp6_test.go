// SPDX-License-Identifier: Apache-2.0

package dhcp6

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/weft-net/weft/internal/model"
)

const own = "fd10:0:2::2"

func guest() model.GuestConfig {
	return model.GuestConfig{LinkMAC: "02:00:00:00:00:00", DHCP6: &model.GuestDHCP6{
		Address: netip.MustParseAddr(own), DNS: []netip.Addr{netip.MustParseAddr("fd00:96::a")},
		Search: []string{"shop.svc.cluster.local", "cluster.local"},
	}}
}

func duid(last byte) dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, last}}
}

// ask builds a message with another DHCPv6 implementation.
func ask(t testing.TB, kind dhcpv6.MessageType, modifiers ...dhcpv6.Modifier) *dhcpv6.Message {
	t.Helper()
	m, err := dhcpv6.NewMessage(append([]dhcpv6.Modifier{dhcpv6.WithClientID(duid(7))}, modifiers...)...)
	if err != nil {
		t.Fatal(err)
	}
	m.MessageType = kind
	return m
}

func withIANA(addrs ...string) dhcpv6.Modifier {
	var list []dhcpv6.OptIAAddress
	for _, a := range addrs {
		list = append(list, dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(a)})
	}
	return func(d dhcpv6.DHCPv6) {
		dhcpv6.WithIAID([4]byte{1, 2, 3, 4})(d)
		dhcpv6.WithIANA(list...)(d)
	}
}

// TestMessages: each type of message and its reply.
func TestMessages(t *testing.T) {
	ours, anothers, rapid := dhcpv6.WithServerID(duid(0)), dhcpv6.WithServerID(duid(9)),
		dhcpv6.WithOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
	noClientID := func(d dhcpv6.DHCPv6) { d.(*dhcpv6.Message).Options.Del(dhcpv6.OptionClientID) }
	for name, c := range map[string]struct {
		kind      dhcpv6.MessageType
		modifiers []dhcpv6.Modifier
		want      dhcpv6.MessageType
		address   string
		status    iana.StatusCode
	}{
		"solicit": {dhcpv6.MessageTypeSolicit, []dhcpv6.Modifier{withIANA()}, dhcpv6.MessageTypeAdvertise, own, 0},
		"solicit rapidly": {
			dhcpv6.MessageTypeSolicit, []dhcpv6.Modifier{withIANA(), rapid}, dhcpv6.MessageTypeReply, own, 0,
		},
		"solicit of a server": {dhcpv6.MessageTypeSolicit, []dhcpv6.Modifier{withIANA(), ours}, 0, "", 0},
		"request": {
			dhcpv6.MessageTypeRequest, []dhcpv6.Modifier{withIANA(own), ours}, dhcpv6.MessageTypeReply, own, 0,
		},
		"request of another":       {dhcpv6.MessageTypeRequest, []dhcpv6.Modifier{withIANA(own), anothers}, 0, "", 0},
		"request without a server": {dhcpv6.MessageTypeRequest, []dhcpv6.Modifier{withIANA(own)}, 0, "", 0},
		"renew": {
			dhcpv6.MessageTypeRenew, []dhcpv6.Modifier{withIANA(own), ours}, dhcpv6.MessageTypeReply, own, 0,
		},
		"rebind": {dhcpv6.MessageTypeRebind, []dhcpv6.Modifier{withIANA(own)}, dhcpv6.MessageTypeReply, own, 0},
		"confirm": {
			dhcpv6.MessageTypeConfirm, []dhcpv6.Modifier{withIANA(own)}, dhcpv6.MessageTypeReply, "", iana.StatusSuccess,
		},
		"confirm another": {
			dhcpv6.MessageTypeConfirm, []dhcpv6.Modifier{withIANA("fd00::9")}, dhcpv6.MessageTypeReply, "", iana.StatusNotOnLink,
		},
		"confirm nothing": {dhcpv6.MessageTypeConfirm, []dhcpv6.Modifier{withIANA()}, 0, "", 0},
		"release": {
			dhcpv6.MessageTypeRelease, []dhcpv6.Modifier{withIANA(own), ours}, dhcpv6.MessageTypeReply, "", iana.StatusSuccess,
		},
		"decline": {
			dhcpv6.MessageTypeDecline, []dhcpv6.Modifier{withIANA(own), ours}, dhcpv6.MessageTypeReply, "", iana.StatusSuccess,
		},
		"information": {dhcpv6.MessageTypeInformationRequest, nil, dhcpv6.MessageTypeReply, "", 0},
		"information unnamed": {
			dhcpv6.MessageTypeInformationRequest, []dhcpv6.Modifier{noClientID}, dhcpv6.MessageTypeReply, "", 0,
		},
		"solicit unnamed": {dhcpv6.MessageTypeSolicit, []dhcpv6.Modifier{withIANA(), noClientID}, 0, "", 0},
		"an answer":       {dhcpv6.MessageTypeReply, []dhcpv6.Modifier{withIANA(own)}, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := ask(t, c.kind, c.modifiers...)
			out := Answer(guest(), m.ToBytes())
			if c.want == 0 {
				if out != nil {
					t.Errorf("answered: %x", out)
				}
				return
			}
			r, err := dhcpv6.MessageFromBytes(out)
			if err != nil {
				t.Fatal(err)
			}
			if r.MessageType != c.want || r.TransactionID != m.TransactionID || !r.Options.ServerID().Equal(duid(0)) {
				t.Errorf("answer: %s", r.Summary())
			}
			if id := m.Options.ClientID(); id != nil && !r.Options.ClientID().Equal(id) {
				t.Errorf("to %s", r.Options.ClientID())
			}
			if s := r.Options.Status(); s != nil && s.StatusCode != c.status {
				t.Errorf("status %s", s)
			}
			if c.address != "" {
				ia := r.Options.OneIANA()
				if ia == nil || ia.IaId != [4]byte{1, 2, 3, 4} || len(ia.Options.Addresses()) != 1 {
					t.Fatalf("identity: %v", ia)
				}
				if a := ia.Options.OneAddress(); a.IPv6Addr.String() != c.address || a.ValidLifetime != 999*24*time.Hour {
					t.Errorf("address: %v", a)
				}
			}
			if c.address != "" || c.kind == dhcpv6.MessageTypeInformationRequest {
				if len(r.Options.DNS()) != 1 ||
					strings.Join(r.Options.DomainSearchList().Labels, ",") != "shop.svc.cluster.local,cluster.local" {
					t.Errorf("names: %s", r.Summary())
				}
			}
		})
	}
}

// TestIdentities: one address is assigned; other addresses get lifetime 0, and other associations are refused.
func TestIdentities(t *testing.T) {
	m := ask(t, dhcpv6.MessageTypeRebind, withIANA("fd00::9", own))
	m.AddOption(&dhcpv6.OptIANA{IaId: [4]byte{9}})
	m.AddOption(&dhcpv6.OptIAPD{IaId: [4]byte{8}})
	r, err := dhcpv6.MessageFromBytes(Answer(guest(), m.ToBytes()))
	if err != nil {
		t.Fatal(err)
	}
	all := r.Options.IANA()
	if len(all) != 2 || len(all[0].Options.Addresses()) != 2 || all[0].Options.Addresses()[1].ValidLifetime != 0 {
		t.Errorf("%s", r.Summary())
	}
	if s := all[1].Options.Status(); s == nil || s.StatusCode != iana.StatusNoAddrsAvail {
		t.Errorf("%v", s)
	}
	if pd := r.Options.OneIAPD(); pd == nil || pd.Options.Status() == nil ||
		pd.Options.Status().StatusCode != iana.StatusNoPrefixAvail {
		t.Errorf("%s", r.Summary())
	}
}

// FuzzAnswer: the reply to any message is well-formed and of bounded size.
func FuzzAnswer(f *testing.F) {
	f.Add(ask(f, dhcpv6.MessageTypeSolicit, withIANA()).ToBytes())
	f.Add(ask(f, dhcpv6.MessageTypeRequest, withIANA(own, "fd00::9"), dhcpv6.WithServerID(duid(0))).ToBytes())
	f.Add(ask(f, dhcpv6.MessageTypeConfirm, withIANA(own)).ToBytes())
	f.Fuzz(func(t *testing.T, message []byte) {
		out := Answer(guest(), message)
		if out == nil {
			return
		}
		const most = 3000
		if len(out) > most {
			t.Fatalf("%d bytes", len(out))
		}
		wellFormed := true
		each(out[4:], func(code uint16, value []byte) {
			switch code {
			case optIANA, optIAPD:
				wellFormed = wellFormed && each(value[12:], func(uint16, []byte) {})
			case optIATA:
				wellFormed = wellFormed && each(value[4:], func(uint16, []byte) {})
			}
		})
		if !wellFormed || !each(out[4:], func(uint16, []byte) {}) {
			t.Fatalf("%x", out)
		}
	})
}
