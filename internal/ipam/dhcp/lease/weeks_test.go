// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestTwoWeeks: two weeks pass on a simulated clock, with leases of half a day. They are renewed in normal operation,
// on a node that sleeps at night, over restarts of the manager, and while the server is temporarily down; the addresses
// stay, and their interface is up. The server does not have that clock: it answers whenever a renewal is due.
func TestTwoWeeks(t *testing.T) {
	nettest.EndToEnd(t)
	for name, c := range map[string]struct {
		keys, served, reacquired string
	}{
		"IPv4": {"", "--dhcp-range=10.9.0.50,10.9.0.99,255.255.255.0,12h", "DHCPDISCOVER"},
		"IPv6": {`,"ipv4":false,"ipv6":true`, "--dhcp-range=fd00:9::50,fd00:9::99,64,12h", "DHCPSOLICIT"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			w.serve(c.served)
			var ahead atomic.Int64
			clock := func(cfg *lease.Config) {
				cfg.Exchange.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				cfg.Exchange.Timeout, cfg.Exchange.ResendTimeout, cfg.Poll = time.Second, time.Second, 10*time.Millisecond
			}
			k := w.manager(clock)
			ns := w.pod()
			a := req(ns, "c1", c.keys)
			r := w.addPatiently(k, a)
			configured(t, ns, r)
			acquired := w.seen(c.reacquired) // with those that the client repeated, because the server was slow
			// when it is remembered, not when the server has said it
			answers := func() int { return w.seen(`msg="lease renewed"`) }
			tried := func() int { return w.seen("dhcp client could not renew a lease") }
			passes := func(d time.Duration) { ahead.Add(int64(d)) }
			renewed := func(what string, d time.Duration) {
				t.Helper()
				before := answers()
				passes(d)
				w.until(what, func() bool { return answers() > before })
				w.kept(k, a, r)
			}
			day := func(n int) {
				t.Helper()
				switch n % 4 {
				case 0: // all is well: renewed at T1
					for range 4 {
						renewed("renewal", 6*time.Hour)
					}
				case 1: // the node sleeps for eleven hours: past T2, any server may answer
					renewed("the evening's", 6*time.Hour)
					renewed("the morning's", 11*time.Hour)
					renewed("the noon's", 7*time.Hour)
				case 2: // the manager is not running meanwhile
					if err := k.Close(); err != nil {
						t.Fatal(err)
					}
					before := answers()
					passes(8 * time.Hour)
					k = w.manager(clock)
					w.until("renewal by the next manager", func() bool { return answers() > before })
					renewed("renewal after it", 16*time.Hour-8*time.Hour)
					renewed("the evening's", 8*time.Hour)
				case 3: // the server is away past T1, and past T2
					w.stop()
					for _, d := range []time.Duration{7 * time.Hour, 4 * time.Hour} {
						before := tried()
						passes(d)
						w.until("a try", func() bool { return tried() > before })
						w.kept(k, a, r)
					}
					w.serve(c.served)
					renewed("renewal when the server is back", 30*time.Minute)
					renewed("the evening's", 12*time.Hour+30*time.Minute-6*time.Hour)
					renewed("the night's", 6*time.Hour)
				}
			}
			for n := range 14 {
				day(n)
			}
			if n := w.seen(c.reacquired); n != acquired {
				t.Errorf("the lease was acquired again %d times", n-acquired)
			}
			if d := time.Duration(ahead.Load()); d < 14*24*time.Hour {
				t.Errorf("only %s have passed", d)
			}
			w.gone(k, a)
		})
	}
}

// TestLeaseEndsByTheClock: a lease whose server never responds again is lost when it expires, not before, and the
// interface is set down.
func TestLeaseEndsByTheClock(t *testing.T) {
	w := newWire(t)
	w.serve("--dhcp-range=10.9.0.50,10.9.0.99,255.255.255.0,12h")
	var ahead atomic.Int64
	k := w.manager(func(cfg *lease.Config) {
		cfg.Exchange.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		cfg.Exchange.Timeout, cfg.Exchange.ResendTimeout, cfg.Poll = time.Second, time.Second, 10*time.Millisecond
	})
	ns := w.pod()
	a := req(ns, "c1", "")
	r := w.addPatiently(k, a)
	configured(t, ns, r)
	w.stop()
	for _, d := range []time.Duration{7 * time.Hour, 4 * time.Hour} {
		before := w.seen("dhcp client could not renew a lease")
		ahead.Add(int64(d))
		w.until("a try", func() bool { return w.seen("dhcp client could not renew a lease") > before })
		w.kept(k, a, r)
	}
	ahead.Add(int64(61 * time.Minute))
	w.until("the loss", func() bool { return w.seen("dhcp client lost a lease; the interface goes down") > 0 })
	w.until("down", func() bool { return !up(t, ns) })
	if err := k.Del(t.Context(), a); err != nil {
		t.Error(err)
	}
}

// kept checks that the container has what it was assigned.
func (w *wire) kept(k *lease.Manager, a ipam.Request, r model.Result) {
	w.t.Helper()
	if err := k.Check(w.t.Context(), a, r); err != nil {
		w.t.Errorf("CHECK: %v", err)
	}
	if w.seen("lost a lease") > 0 {
		w.t.Fatal("the lease was lost")
	}
}
