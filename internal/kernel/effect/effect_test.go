// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// wire connects two namespaces by a pair, eth0 in both.
func wire(t *testing.T) (a, b *netns.NS) {
	t.Helper()
	a, b = nettest.NS(t, "a"), nettest.NS(t, "b")
	nettest.Run(t, a, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.Path())
	for _, ns := range []*netns.NS{a, b} {
		nettest.Run(t, ns, "ip", "link", "set", "eth0", "addrgenmode", "none")
		nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	}
	for _, ns := range []*netns.NS{a, b} { // until the kernel has processed the carrier, frames are dropped
		for end := time.Now().Add(time.Minute); !strings.Contains(nettest.Run(t, ns, "ip", "-br", "link", "show", "eth0"),
			" UP "); {
			if time.Now().After(end) {
				t.Fatal("eth0 has no carrier")
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return a, b
}

func TestWaitDAD(t *testing.T) {
	a, b := wire(t)
	nettest.Run(t, a, "ip", "addr", "add", "fd00::1/64", "dev", "eth0")
	if out := nettest.Run(t, a, "ip", "addr", "show", "tentative"); !strings.Contains(out, "fd00::1") {
		t.Fatalf("the address is not tentative, so this test proves nothing: %s", out)
	}
	start := time.Now()
	if err := Do(t.Context(), a, new(Conntrack), state.Effect{Kind: state.WaitDAD, Link: "eth0"}); err != nil {
		t.Fatal(err)
	}
	if out := nettest.Run(t, a, "ip", "addr", "show", "tentative"); strings.Contains(out, "fd00::1") {
		t.Errorf("still tentative after %v: %s", time.Since(start), out)
	}
	nettest.Run(t, b, "ip", "addr", "add", "fd00::1/64", "dev", "eth0")
	if err := Do(t.Context(), b, new(Conntrack), state.Effect{
		Kind: state.WaitDAD, Link: "eth0",
	}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("an address that somebody else has: %v", err)
	}
}

func TestAnnounce(t *testing.T) {
	a, b := wire(t)
	nettest.Run(t, b, "ip", "addr", "add", "10.0.0.2/24", "dev", "eth0")
	nettest.Run(t, b, "ip", "addr", "add", "fd00::2/64", "dev", "eth0", "nodad")
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	for _, ip := range addrs {
		nettest.Run(t, b, "ip", "neigh", "replace", ip.String(), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale")
	}
	if err := Do(t.Context(), a, new(Conntrack), state.Effect{
		Kind: state.Announce, Link: "eth0", Addrs: addrs,
	}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		out := nettest.Run(t, b, "ip", "neigh")
		if !strings.Contains(out, "02:00:00:00:00:99") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the neighbor still has the old MAC:\n%s", out)
		}
	}
}

func TestUnknown(t *testing.T) {
	if err := Do(t.Context(), nil, new(Conntrack), state.Effect{Kind: "dance"}); err == nil {
		t.Error("an unknown effect succeeded")
	}
}
