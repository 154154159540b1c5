// SPDX-License-Identifier: Apache-2.0

package dhcp4

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/weft-net/weft/internal/model"
)

const guestMAC = "02:00:00:00:00:77"

func guest() model.GuestConfig {
	return model.GuestConfig{MAC: guestMAC, DHCP4: &model.GuestDHCP4{
		Address: netip.MustParsePrefix("10.244.1.5/32"), Server: netip.MustParseAddr("169.254.75.10"),
		Router: netip.MustParseAddr("169.254.1.1"),
		Routes: []model.GuestRoute{
			{Dst: netip.MustParsePrefix("169.254.1.1/32")},
			{Dst: netip.MustParsePrefix("10.96.0.0/12"), GW: netip.MustParseAddr("169.254.1.1")},
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("169.254.1.1")},
		},
		MTU: 1450, Hostname: "vm1", Domain: "shop.svc.cluster.local", DNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Search: []string{"shop.svc.cluster.local", "cluster.local"},
		Options: model.VMDHCP{
			BootFileName: "pxe.0", TFTPServerName: "tftp.example", NTPServers: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			Private: []model.VMDHCPOption{{Option: 240, Value: "extra"}},
		},
	}}
}

// ask builds a request with another DHCP implementation.
func ask(t testing.TB, kind dhcpv4.MessageType, modifiers ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	hw, err := net.ParseMAC(guestMAC)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(hw), dhcpv4.WithMessageType(kind)}, modifiers...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func answer(t *testing.T, g model.GuestConfig, m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, netip.Addr) {
	t.Helper()
	reply, to := Answer(g, m.ToBytes())
	if reply == nil {
		return nil, to
	}
	r, err := dhcpv4.FromBytes(reply)
	if err != nil {
		t.Fatal(err)
	}
	if r.TransactionID != m.TransactionID || r.OpCode != dhcpv4.OpcodeBootReply || r.ClientHWAddr.String() != guestMAC ||
		len(reply) < minPacket {
		t.Errorf("answer: %s", r.Summary())
	}
	return r, to
}

// TestOptions: an offer has all options that KubeVirt's DHCP server sends.
func TestOptions(t *testing.T) {
	r, to := answer(t, guest(), ask(t, dhcpv4.MessageTypeDiscover))
	if r == nil || r.MessageType() != dhcpv4.MessageTypeOffer || to != Broadcast() ||
		r.YourIPAddr.String() != "10.244.1.5" {
		t.Fatalf("%v to %s", r, to)
	}
	if mtu := r.Options.Get(dhcpv4.OptionInterfaceMTU); !bytes.Equal(mtu, []byte{1450 >> 8, 1450 & 255}) {
		t.Errorf("mtu %v", mtu)
	}
	var routes []string
	for _, route := range r.ClasslessStaticRoute() {
		routes = append(routes, route.Dest.String()+" "+route.Router.String())
	}
	for what, have := range map[string][2]string{
		"mask": {net.IP(r.SubnetMask()).String(), "255.255.255.255"}, "router": {r.Router()[0].String(), "169.254.1.1"},
		"server": {r.ServerIdentifier().String(), "169.254.75.10"},
		"lease":  {r.IPAddressLeaseTime(0).String(), (999 * 24 * time.Hour).String()},
		"routes": {strings.Join(routes, ","), "169.254.1.1/32 0.0.0.0,10.96.0.0/12 169.254.1.1,0.0.0.0/0 169.254.1.1"},
		"dns":    {r.DNS()[0].String(), "10.96.0.10"}, "name": {r.HostName(), "vm1"},
		"domain": {r.DomainName(), "shop.svc.cluster.local"},
		"search": {strings.Join(r.DomainSearch().Labels, ","), "shop.svc.cluster.local,cluster.local"},
		"ntp":    {r.NTPServers()[0].String(), "192.0.2.1"},
		"boot":   {r.BootFileNameOption(), "pxe.0"}, "tftp": {r.TFTPServerName(), "tftp.example"},
		"private": {string(r.Options.Get(dhcpv4.GenericOptionCode(240))), "extra"},
	} {
		if have[0] != have[1] {
			t.Errorf("%s: %q, want %q", what, have[0], have[1])
		}
	}
}

// TestRequests: which requests are confirmed, refused or not answered, and where the answer goes.
func TestRequests(t *testing.T) {
	own, server := net.IPv4(10, 244, 1, 5), net.IPv4(169, 254, 75, 10)
	wants := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip)) }
	chose := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ip)) }
	another := net.IPv4(10, 244, 7, 7)
	for name, c := range map[string]struct {
		kind      dhcpv4.MessageType
		modifiers []dhcpv4.Modifier
		want      dhcpv4.MessageType
		to        string
	}{
		"selecting": {
			dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(own), chose(server)}, dhcpv4.MessageTypeAck, "255.255.255.255",
		},
		"another server": {dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(own), chose(another)}, 0, ""},
		"another address": {
			dhcpv4.MessageTypeRequest,
			[]dhcpv4.Modifier{wants(another), chose(server)},
			dhcpv4.MessageTypeNak,
			"255.255.255.255",
		},
		"rebooting": {
			dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(own)}, dhcpv4.MessageTypeAck, "255.255.255.255",
		},
		"of a pod before": {
			dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{wants(another)}, dhcpv4.MessageTypeNak, "255.255.255.255",
		},
		"renewing": {
			dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{dhcpv4.WithClientIP(own)}, dhcpv4.MessageTypeAck, "10.244.1.5",
		},
		"renewing wrong": {
			dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{dhcpv4.WithClientIP(another)}, dhcpv4.MessageTypeNak, "255.255.255.255",
		},
		"nothing wanted": {dhcpv4.MessageTypeRequest, nil, dhcpv4.MessageTypeNak, "255.255.255.255"},
		"informing": {
			dhcpv4.MessageTypeInform, []dhcpv4.Modifier{dhcpv4.WithClientIP(own)}, dhcpv4.MessageTypeAck, "10.244.1.5",
		},
		"informing wrong": {dhcpv4.MessageTypeInform, []dhcpv4.Modifier{dhcpv4.WithClientIP(another)}, 0, ""},
		"releasing":       {dhcpv4.MessageTypeRelease, []dhcpv4.Modifier{dhcpv4.WithClientIP(own)}, 0, ""},
		"declining":       {dhcpv4.MessageTypeDecline, []dhcpv4.Modifier{wants(own)}, 0, ""},
		"an offer":        {dhcpv4.MessageTypeOffer, nil, 0, ""},
		"another guest": {
			dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 9})}, 0, "",
		},
		"relayed": {dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{dhcpv4.WithRelay(another)}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, to := answer(t, guest(), ask(t, c.kind, c.modifiers...))
			switch {
			case c.want == 0 && r != nil:
				t.Errorf("answered: %s", r.Summary())
			case c.want != 0 && (r == nil || r.MessageType() != c.want || to.String() != c.to):
				t.Errorf("%v to %s, want %s to %s", r, to, c.want, c.to)
			case c.want == dhcpv4.MessageTypeNak && !r.YourIPAddr.IsUnspecified():
				t.Errorf("refused with an address: %s", r.YourIPAddr)
			case c.kind == dhcpv4.MessageTypeInform && r != nil && r.IPAddressLeaseTime(0) != 0:
				t.Error("DHCPINFORM is answered with a lease time")
			}
		})
	}
}

// TestLength: no packet is longer than the guest accepts; the manifest's own options are left out first.
func TestLength(t *testing.T) {
	g := guest()
	for i := range 31 {
		g.DHCP4.Options.Private = append(g.DHCP4.Options.Private, model.VMDHCPOption{
			Option: uint8(224 + i), Value: strings.Repeat("x", 255),
		})
	}
	for _, size := range []uint16{0, 576, 1500, 9000} {
		m := ask(t, dhcpv4.MessageTypeDiscover)
		if size > 0 {
			m.UpdateOption(dhcpv4.OptMaxMessageSize(size))
		}
		reply, _ := Answer(g, m.ToBytes())
		if most := max(int(size), 576) - 28; len(reply) > most {
			t.Errorf("%d bytes for %d", len(reply), most)
		}
		r, err := dhcpv4.FromBytes(reply)
		if err != nil || r.HostName() != "vm1" || len(r.ClasslessStaticRoute()) != 3 {
			t.Errorf("%v %v", r, err)
		}
	}
}

// FuzzAnswer: the reply to any packet is valid for another implementation, and goes to the guest only.
func FuzzAnswer(f *testing.F) {
	f.Add(ask(f, dhcpv4.MessageTypeDiscover).ToBytes())
	f.Add(ask(f, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 244, 1, 5))).ToBytes())
	f.Add(ask(f, dhcpv4.MessageTypeInform, dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(9000))).ToBytes())
	f.Fuzz(func(t *testing.T, packet []byte) {
		for _, only := range []string{guestMAC, ""} {
			g := guest()
			g.MAC = only
			reply, to := Answer(g, packet)
			if reply == nil {
				continue
			}
			if !to.IsValid() || to != Broadcast() && to != g.DHCP4.Address.Addr() {
				t.Fatalf("it would go to %s", to)
			}
			if r, err := dhcpv4.FromBytes(reply); err != nil || r.OpCode != dhcpv4.OpcodeBootReply {
				t.Fatalf("%v %v", r, err)
			}
		}
	})
}
