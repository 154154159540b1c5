// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// longProbe is more than a busy host takes to answer.
const longProbe = 10 * time.Second

func probeOf(timeout time.Duration, addrs ...string) []state.Effect {
	e := state.Effect{Kind: state.ProbeAddrs, When: state.BeforeAddrs, Link: "eth0", Milliseconds: int(timeout.Milliseconds())}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(a))
	}
	return []state.Effect{e}
}

// TestProbe: the other host's kernel answers for its addresses, also with an interface that has no address and no IPv6.
func TestProbe(t *testing.T) {
	a, b := wire(t)
	nettest.Run(t, a, "ip", "addr", "add", "10.0.0.1/24", "dev", "eth0")
	nettest.Run(t, a, "ip", "addr", "add", "fd00::1/64", "dev", "eth0", "nodad")
	nettest.Run(t, b, "sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1")
	mac := nettest.MAC(t, a, "eth0").String()
	for _, taken := range []string{"10.0.0.1", "fd00::1"} {
		err := Probe(t.Context(), b, probeOf(longProbe, "10.0.0.7", "fd00::7", taken))
		var duplicate *DuplicateError
		if !errors.As(err, &duplicate) || !errors.Is(err, ErrDuplicate) || duplicate.Addr.String() != taken ||
			duplicate.MAC.String() != mac || duplicate.Link != "eth0" || duplicate.Probing {
			t.Errorf("%s, which host %s has: %v", taken, mac, err)
		}
	}
	start := time.Now()
	if err := Probe(t.Context(), b, probeOf(150*time.Millisecond, "10.0.0.7", "fd00::7")); err != nil {
		t.Errorf("free addresses: %v", err)
	}
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("free addresses were probed for %s", took)
	}
	if out := nettest.Run(t, a, "ip", "neigh"); strings.Contains(out, "10.0.0.7") || strings.Contains(out, "0.0.0.0") {
		t.Errorf("the other host has stored a probe: %s", out)
	}
}

// TestProbeAtOnce: two hosts probe for one address. At most one of them gets it.
func TestProbeAtOnce(t *testing.T) {
	a, b := wire(t)
	got := map[string]chan error{}
	for _, addr := range []string{"10.0.0.1", "fd00::1"} {
		got[addr] = make(chan error, 2)
		for _, ns := range []*netns.NS{a, b} {
			go func() { got[addr] <- Probe(t.Context(), ns, probeOf(longProbe, addr)) }()
		}
	}
	for addr, errs := range got {
		refused := 0
		for range cap(errs) {
			var duplicate *DuplicateError
			switch err := <-errs; {
			case errors.As(err, &duplicate) && duplicate.Probing:
				refused++
			case err != nil:
				t.Errorf("%s: %v", addr, err)
			}
		}
		if refused == 0 {
			t.Errorf("both hosts get %s", addr)
		}
	}
}

func TestProbeCannotBeSent(t *testing.T) {
	a, b := wire(t)
	nettest.Run(t, a, "ip", "link", "set", "eth0", "down")
	for end := time.Now().Add(20 * time.Second); strings.Contains(nettest.Run(t, b, "ip", "-br", "link", "show", "eth0"), "LOWER_UP"); {
		if time.Now().After(end) {
			t.Fatal("eth0 still has a carrier")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := Probe(t.Context(), b, probeOf(time.Millisecond, "10.0.0.1")); !errors.Is(err, errNoCarrier) {
		t.Errorf("without a carrier: %v", err)
	}
	nettest.Run(t, a, "ip", "link", "del", "eth0")
	if err := Probe(t.Context(), b, probeOf(longProbe, "10.0.0.1")); err == nil || !strings.Contains(err.Error(), "eth0") {
		t.Errorf("without the link: %v", err)
	}
}

func TestProbeIsCanceled(t *testing.T) {
	_, b := wire(t)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() { errs <- Probe(ctx, b, probeOf(time.Hour, "10.0.0.1")) }()
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
