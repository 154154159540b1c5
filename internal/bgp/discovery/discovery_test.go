// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// start searches a router on a link.
func start(t *testing.T, link string) *Links {
	t.Helper()
	l := New(slog.New(slog.DiscardHandler), time.Now)
	l.Set([]string{link})
	t.Cleanup(func() { l.Set(nil) })
	return l
}

func eventually(t *testing.T, what string, holds func() bool, state func() any) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after a minute: %v", what, state())
		}
	}
}

// finds waits until the only router of a link is the one with an address.
func finds(t *testing.T, l *Links, link, want string) {
	t.Helper()
	eventually(t, link+" has the router "+want, func() bool {
		got, err := l.Router(link, netip.Addr{})
		return err == nil && got == netip.MustParseAddr(want).WithZone(link)
	}, func() any { got, err := l.Router(link, netip.Addr{}); return []any{got, err} })
}

// reports waits until the error about a link has a text.
func reports(t *testing.T, l *Links, link, text string) {
	t.Helper()
	eventually(t, link+": "+text, func() bool {
		_, err := l.Router(link, netip.Addr{})
		return err != nil && strings.Contains(err.Error(), text)
	}, func() any { _, err := l.Router(link, netip.Addr{}); return err })
}

// Both ends of a link find each other. A second router, a link that is down and one that does not exist are reported, and
// a new link of that name is searched again.
func TestRouter(t *testing.T) {
	veth := func() {
		nettest.Run(t, nil, "ip", "link", "add", "ra", "address", "02:00:00:00:00:0a", "type", "veth", "peer", "name", "rb",
			"address", "02:00:00:00:00:0b")
		nettest.Run(t, nil, "ip", "link", "set", "ra", "up")
		nettest.Run(t, nil, "ip", "link", "set", "rb", "up")
	}
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "ra") })
	a := start(t, "ra")
	reports(t, a, "ra", "interface ra does not exist")
	veth()
	reports(t, a, "ra", "no router is heard on interface ra")
	b := start(t, "rb")
	finds(t, a, "ra", "fe80::ff:fe00:b")
	finds(t, b, "rb", "fe80::ff:fe00:a")

	a.mu.Lock()
	a.takeLocked(message{routerAdvertisement, netip.MustParseAddr("fe80::99"), a.links["ra"].index})
	a.mu.Unlock()
	reports(t, a, "ra", "has the routers [fe80::99%ra fe80::ff:fe00:b%ra]")

	for _, used := range []string{"fe80::ff:fe00:b%ra", "fe80::99%ra"} {
		if got, err := a.Router("ra", netip.MustParseAddr(used)); err == nil || got.String() != used {
			t.Errorf("with %s in use: %s, %v", used, got, err)
		}
	}

	nettest.Run(t, nil, "ip", "link", "set", "rb", "down")
	reports(t, a, "ra", "interface ra is down")
	nettest.Run(t, nil, "ip", "link", "del", "ra")
	reports(t, a, "ra", "interface ra does not exist")
	veth()
	finds(t, a, "ra", "fe80::ff:fe00:b")
}

// Any host of a link can send advertisements of any address: they are no reason to send as many, to remember as many, or to
// give up the router that is tried.
func TestFlood(t *testing.T) {
	now := time.Now()
	l := New(slog.New(slog.DiscardHandler), func() time.Time { return now })
	router := netip.MustParseAddr("fe80::1")
	l.links["ra"] = &link{index: 7, routers: map[netip.Addr]time.Time{}}
	k := l.links["ra"]
	l.takeLocked(message{routerAdvertisement, router, 7}) // there is no socket: an answer at once would end the test
	if !k.asked {
		t.Error("no advertisement is due for a new router")
	}
	a := netip.MustParseAddr("fe80::100")
	for range 10 * mostRouters {
		l.takeLocked(message{routerAdvertisement, a, 7})
		l.takeLocked(message{routerSolicitation, a, 7})
		a = a.Next()
	}
	if len(k.routers) != mostRouters || k.chosen != router.WithZone("ra") {
		t.Errorf("%d routers are remembered, and %s is tried", len(k.routers), k.chosen)
	}
	now = now.Add(forget + time.Second)
	l.takeLocked(message{routerAdvertisement, netip.MustParseAddr("fe80::2"), 7})
	if got, err := l.Router("ra", router.WithZone("ra")); len(k.routers) != 2 || got != router.WithZone("ra") || err == nil {
		t.Errorf("after the flood: %d routers, %s, %v", len(k.routers), got, err)
	}
}

// A message that a router has forwarded, or that is not of a link-local address, is not a neighbor's.
func TestDecode(t *testing.T) {
	control := func(hops int) []byte {
		b := make([]byte, unix.CmsgSpace(4))
		binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(4)))
		binary.NativeEndian.PutUint32(b[8:], unix.IPPROTO_IPV6)
		binary.NativeEndian.PutUint32(b[12:], unix.IPV6_HOPLIMIT)
		binary.NativeEndian.PutUint32(b[16:], uint32(hops))
		return b
	}
	from := func(a string) unix.Sockaddr {
		return &unix.SockaddrInet6{Addr: netip.MustParseAddr(a).As16(), ZoneId: 7}
	}
	advertisement := append([]byte{routerAdvertisement}, make([]byte, 15)...)
	for _, c := range []struct {
		name    string
		data    []byte
		control []byte
		from    string
		want    bool
	}{
		{"an advertisement", advertisement, control(255), "fe80::1", true},
		{"a solicitation without an address", append([]byte{routerSolicitation}, make([]byte, 7)...), control(255), "::", true},
		{"of a host that is farther away", advertisement, control(254), "fe80::1", false},
		{"without its hop limit", advertisement, nil, "fe80::1", false},
		{"of a global address", advertisement, control(255), "2001:db8::1", false},
		{"too short", advertisement[:15], control(255), "fe80::1", false},
		{"empty", nil, control(255), "fe80::1", false},
	} {
		m, got := decode(c.data, c.control, from(c.from))
		if got != c.want || got && (m.index != 7 || m.from != netip.MustParseAddr(c.from)) {
			t.Errorf("%s: %+v, %t", c.name, m, got)
		}
	}
}
