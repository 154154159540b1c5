// SPDX-License-Identifier: Apache-2.0

package ndp

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

func guest() model.GuestConfig {
	return model.GuestConfig{LinkMAC: "02:00:00:00:00:00", RA: &model.GuestRA{
		Prefix: netip.MustParsePrefix("fd10:0:2::/120"), MTU: 1450,
		DNS:    []netip.Addr{netip.MustParseAddr("fd00:96::a"), netip.MustParseAddr("10.96.0.10")},
		Search: []string{"cluster.local"},
	}}
}

func TestAdvertisement(t *testing.T) {
	const want = "8600000040c007080000000000000000" + // a router for 1800 s; addresses and the rest by DHCPv6
		"0101020000000000" + "05010000000005aa" + // its address; MTU 1450
		"03047880ffffffffffffffff00000000fd100000000200000000000000000000" + // fd10:0:2::/120 is on-link
		"1903000000000708fd00009600000000000000000000000a" + // a DNS server
		"1f030000000007080763" + "6c7573746572056c6f63616c0000" // a search domain
	if got := hex.EncodeToString(Advertisement(guest(), Lifetime)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	routerless := guest()
	routerless.RA.NoRouter = true // only the lifetime of the router is 0
	if got, want := hex.EncodeToString(Advertisement(routerless, Lifetime)), strings.Replace(want, "c00708", "c00000", 1); got != want {
		t.Errorf("without a router\n got %s\nwant %s", got, want)
	}
	if got := Advertisement(guest(), 0); got[6] != 0 || got[7] != 0 {
		t.Errorf("withdrawn: %x", got)
	}
	if got := Advertisement(model.GuestConfig{}, Lifetime); got != nil {
		t.Errorf("%x", got)
	}
}

func TestSolicited(t *testing.T) {
	from, unspecified := netip.MustParseAddr("fe80::7"), netip.IPv6Unspecified()
	const plain, source = "8500000000000000", "01010200000000"
	for _, c := range []struct {
		message string
		from    netip.Addr
		hops    int
		want    bool
	}{
		{plain, from, 255, true},
		{plain, unspecified, 255, true},
		{plain + source + "77", from, 255, true},
		{plain + source + "77", unspecified, 255, false},
		{plain, from, 254, false},
		{plain[:14], from, 255, false},
		{"8501000000000000", from, 255, false},
		{"8600000000000000", from, 255, false},
		{plain + "0100", from, 255, false},
		{plain + source, from, 255, false},
		{plain + "01", from, 255, false},
	} {
		b, err := hex.DecodeString(c.message)
		if err != nil {
			t.Fatal(err)
		}
		if got := Solicited(b, c.from, c.hops); got != c.want {
			t.Errorf("%s from %s: %v", c.message, c.from, got)
		}
	}
}

func FuzzSolicited(f *testing.F) {
	f.Add([]byte{133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 7})
	f.Fuzz(func(t *testing.T, message []byte) {
		if Solicited(message, netip.MustParseAddr("fe80::7"), 255) &&
			(len(message) < 8 || len(message)%8 != 0 || message[0] != 133) {
			t.Fatalf("%x", message)
		}
	})
}
