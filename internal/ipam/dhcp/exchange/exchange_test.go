// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

func ack(t testing.TB, options ...dhcpv4.Option) []byte {
	t.Helper()
	m, err := dhcpv4.New(dhcpv4.WithYourIP(net.IP{10, 0, 0, 5}), dhcpv4.WithMessageType(dhcpv4.MessageTypeAck))
	if err != nil {
		t.Fatal(err)
	}
	m.OpCode = dhcpv4.OpcodeBootReply
	for _, o := range options {
		m.UpdateOption(o)
	}
	return m.ToBytes()
}

func raw(code uint8, value ...byte) dhcpv4.Option {
	return dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), value)
}

// A server's kernel accepts the frame that is sent, and parsing a frame returns what was framed.
func TestFrame(t *testing.T) {
	src, dst := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	from, to := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.1")
	for _, body := range []string{"", "a", "hello", strings.Repeat("x", 1471)} {
		f := frame4(src, dst, from, to, []byte(body))
		if sum16(f[etherLen:etherLen+ipLen]) != 0 {
			t.Errorf("%d bytes: the checksum of IP is wrong", len(body))
		}
		pseudo := append(append([]byte{}, f[etherLen+12:etherLen+20]...), 0, 17, f[etherLen+24], f[etherLen+25])
		if sum16(pseudo, f[etherLen+ipLen:]) != 0 {
			t.Errorf("%d bytes: the checksum of UDP is wrong", len(body))
		}
		f[etherLen+ipLen+2], f[etherLen+ipLen+3] = 0, clientPort4 // as if it were a response
		got, sender, err := parse4(append(f, 0, 0, 0))            // padded, as short frames are
		if err != nil || string(got) != body || !bytes.Equal(sender, src) {
			t.Errorf("%q from %s: %v", got, sender, err)
		}
	}
}

func TestParseRefusals(t *testing.T) {
	good := frame4(make([]byte, 6), make([]byte, 6), netip.IPv4Unspecified(), netip.IPv4Unspecified(), []byte("hello"))
	good[etherLen+ipLen+2], good[etherLen+ipLen+3] = 0, clientPort4
	if _, _, err := parse4(good); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func([]byte) []byte{
		"short":         func(f []byte) []byte { return f[:30] },
		"no IPv4":       func(f []byte) []byte { f[12] = 0x86; return f },
		"IPv6":          func(f []byte) []byte { f[14] = 0x65; return f },
		"short header":  func(f []byte) []byte { f[14] = 0x44; return f },
		"long header":   func(f []byte) []byte { f[14] = 0x4f; return f },
		"no UDP":        func(f []byte) []byte { f[23] = 6; return f },
		"fragment":      func(f []byte) []byte { f[21] = 1; return f },
		"more to come":  func(f []byte) []byte { f[20] = 0x20; return f },
		"cut":           func(f []byte) []byte { return f[:len(f)-1] },
		"another port":  func(f []byte) []byte { f[37] = 69; return f },
		"too much UDP":  func(f []byte) []byte { f[39] = 14; return f },
		"too little":    func(f []byte) []byte { f[39] = 7; return f },
		"IP too little": func(f []byte) []byte { f[17] = 27; return f },
	} {
		if body, _, err := parse4(edit(bytes.Clone(good))); err == nil {
			t.Errorf("%s: %q", name, body)
		}
	}
}

// Servers may send unusual messages.
func TestRead4(t *testing.T) {
	mask := raw(1, 255, 255, 255, 0)
	bound := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		options       []dhcpv4.Option
		err           string
		renew, rebind time.Duration
		expire        time.Duration
		domain        string
		routes        int
	}{
		"no mask": {err: "no subnet mask (option 1)"},
		"nothing else": {
			options: []dhcpv4.Option{mask}, renew: 30 * time.Minute, rebind: 3150 * time.Second, expire: time.Hour,
		},
		"a minute": {
			options: []dhcpv4.Option{mask, raw(51, 0, 0, 0, 60)}, renew: 30 * time.Second, rebind: 52500 * time.Millisecond,
			expire: time.Minute,
		},
		"told": {
			options: []dhcpv4.Option{mask, raw(51, 0, 0, 0, 60), raw(58, 0, 0, 0, 10), raw(59, 0, 0, 0, 20)},
			renew:   10 * time.Second, rebind: 20 * time.Second, expire: time.Minute,
		},
		"the wrong order": {
			options: []dhcpv4.Option{mask, raw(51, 0, 0, 0, 60), raw(58, 0, 0, 0, 50), raw(59, 0, 0, 0, 20)},
			renew:   20 * time.Second, rebind: 20 * time.Second, expire: time.Minute,
		},
		"beyond the end": {
			options: []dhcpv4.Option{mask, raw(51, 0, 0, 0, 60), raw(59, 0, 0, 1, 20)}, renew: 30 * time.Second,
			rebind: 52500 * time.Millisecond, expire: time.Minute,
		},
		"for ever": {options: []dhcpv4.Option{mask, raw(51, 255, 255, 255, 255)}},
		"a domain that ends in zero": {
			options: []dhcpv4.Option{mask, raw(15, []byte("example.org.\x00")...), raw(51, 255, 255, 255, 255)},
			domain:  "example.org",
		},
		"a domain with a line break": {
			options: []dhcpv4.Option{mask, raw(15, []byte("a\nnameserver 6.6.6.6")...), raw(51, 255, 255, 255, 255)},
		},
		"classful default and class E": {
			options: []dhcpv4.Option{
				mask, raw(33, 0, 0, 0, 0, 10, 0, 0, 1, 240, 0, 0, 0, 10, 0, 0, 1, 10, 1), raw(51, 255, 255, 255, 255),
			},
		},
		"half a classless route": {options: []dhcpv4.Option{mask, raw(121, 24, 10, 0), raw(51, 255, 255, 255, 255)}},
		"classless route of 33 bits": {
			options: []dhcpv4.Option{mask, raw(121, 33, 10, 0, 0, 0, 0, 10, 0, 0, 1), raw(51, 255, 255, 255, 255)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Grant{Family: IPv4, Packet: ack(t, tc.options...), Bound: bound}.Lease()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			at := func(d time.Duration) time.Time {
				if d == 0 {
					return time.Time{}
				}
				return bound.Add(d)
			}
			if l.Renew != at(tc.renew) || l.Rebind != at(tc.rebind) || l.Expire != at(tc.expire) {
				t.Errorf("renew %s, rebind %s, expire %s", l.Renew.Sub(bound), l.Rebind.Sub(bound), l.Expire.Sub(bound))
			}
			if l.DNS.Domain != tc.domain || len(l.Routes) != tc.routes {
				t.Errorf("domain %q, routes %v", l.DNS.Domain, l.Routes)
			}
		})
	}
}

func TestClientID(t *testing.T) {
	if got := string(clientID("c/net/eth0")); got != "\x00c/net/eth0" {
		t.Errorf("%q", got)
	}
	if got := clientID(strings.Repeat("c", 300)); len(got) != 255 {
		t.Errorf("%d bytes", len(got))
	}
}

func reply6(status iana.StatusCode, valid, t1 time.Duration) []byte {
	m := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply}
	ia := &dhcpv6.OptIANA{T1: t1}
	ia.Options.Add(&dhcpv6.OptIAAddress{
		IPv6Addr: net.ParseIP("fd00::5"), PreferredLifetime: valid / 2, ValidLifetime: valid,
	})
	ia.Options.Add(&dhcpv6.OptStatusCode{StatusCode: status})
	m.AddOption(ia)
	return m.ToBytes()
}

func TestRead6(t *testing.T) {
	bound := time.Unix(1000, 0)
	l, err := Grant{Family: IPv6, Packet: reply6(iana.StatusSuccess, time.Hour, 0), Bound: bound}.Lease()
	if err != nil || l.Address.String() != "fd00::5/128" || l.Renew != bound.Add(15*time.Minute) ||
		l.Rebind != bound.Add(48*time.Minute) ||
		l.Expire != bound.Add(time.Hour) {
		t.Errorf("%+v, %v", l, err)
	}
	for _, packet := range [][]byte{
		nil, {7}, reply6(iana.StatusNoBinding, time.Hour, 0), reply6(iana.StatusSuccess, 0, 0), (&dhcpv6.Message{}).ToBytes(),
	} {
		if l, err := (Grant{Family: IPv6, Packet: packet}).Lease(); err == nil {
			t.Errorf("%x: %+v", packet, l)
		}
	}
	if _, err := (Grant{Family: 5}).Lease(); err == nil {
		t.Error("family 5")
	}
}

// Every message of a server is decoded or rejected, and a decoded lease can be used.
func FuzzLease(f *testing.F) {
	f.Add(false,
		ack(f, raw(1, 255, 255, 255, 0), raw(3, 10, 0, 0, 1), raw(121, 24, 10, 0, 0, 10, 0, 0, 1), raw(119, 1, 'a', 0)))
	f.Add(false, ack(f, raw(1, 255, 0, 255, 0), raw(33, 10, 0, 0, 0, 10, 0, 0, 1)))
	f.Add(true, reply6(iana.StatusSuccess, time.Hour, time.Minute))
	f.Fuzz(func(t *testing.T, six bool, packet []byte) {
		g := Grant{Family: IPv4, Packet: packet, Bound: time.Unix(1000, 0)}
		if six {
			g.Family = IPv6
		}
		l, err := g.Lease()
		if err != nil {
			return
		}
		if !l.Address.IsValid() || l.Address.Addr().Is4() == six {
			t.Errorf("address %s", l.Address)
		}
		if !l.Expire.IsZero() && (l.Renew.After(l.Rebind) || l.Rebind.After(l.Expire)) {
			t.Errorf("renew %s, rebind %s, expire %s", l.Renew, l.Rebind, l.Expire)
		}
		for _, r := range l.Routes {
			if !r.Dst.IsValid() || r.Dst != r.Dst.Masked() || !r.GW.IsValid() {
				t.Errorf("route %+v", r)
			}
		}
		for _, s := range append(append(l.DNS.Search, l.DNS.Domain), l.DNS.Nameservers...) {
			if strings.ContainsAny(s, " \n\t\x00") {
				t.Errorf("dns %q", s)
			}
		}
	})
}

// FuzzFrame: every frame contains a message, or is ignored.
func FuzzFrame(f *testing.F) {
	f.Add(frame4(make([]byte, 6), make([]byte, 6), netip.IPv4Unspecified(), netip.IPv4Unspecified(), []byte("hello")))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if body, from, err := parse4(frame); err == nil && (len(from) != 6 || len(body) > len(frame)) {
			t.Errorf("%d bytes from %s", len(body), from)
		}
	})
}

// All messages identify the client alike.
func TestMessage(t *testing.T) {
	w := Options{Now: func() time.Time { return time.Unix(1000, 0) }, Random: bytes.NewReader(bytes.Repeat([]byte{7}, 64))}
	for _, broadcast := range []bool{false, true} {
		c := &client4{world: w, link: Link{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, id: Identity{
			ID: "c/n/eth0", Broadcast: broadcast, Provide: []Option{{Code: 12, Value: []byte("host")}}, Request: []uint8{1, 121},
		}}
		m, err := c.message(dhcpv4.MessageTypeDiscover, time.Unix(990, 0))
		if err != nil {
			t.Fatal(err)
		}
		if m.IsBroadcast() != broadcast || m.NumSeconds != 10 || m.TransactionID != [4]byte{7, 7, 7, 7} ||
			m.HostName() != "host" || !bytes.Equal(m.Options.Get(dhcpv4.OptionParameterRequestList), []byte{1, 121}) {
			t.Errorf("broadcast %t: %s", broadcast, m.Summary())
		}
	}
}

// The pauses double up to the longest, and do not exceed the end.
func TestRounds(t *testing.T) {
	now := time.Unix(1000, 0)
	w := Options{
		Now: func() time.Time { return now }, Random: bytes.NewReader(bytes.Repeat([]byte{0, 0, 0, 100}, 16)),
		Timeout: 3 * time.Second, ResendMax: 8 * time.Second,
	}
	r := w.rounds()
	var got []string
	for range 4 {
		got = append(got, r.wait(now.Add(time.Hour)).String())
	}
	got = append(got, r.wait(now.Add(time.Second)).String())
	if s := strings.Join(got, " "); s != "1s 2s 3s 3s 1s" {
		t.Errorf("pauses %s", s)
	}
}
