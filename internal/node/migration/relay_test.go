// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// TestRelays: the source node of a VM may forward packets while the VM is awaited, and for a minute after the switch;
// no node may after the attachment is deleted.
func TestRelays(t *testing.T) {
	m := moverOf(t)
	now, changes := time.Unix(1000, 0), atomic.Int32{}
	over := make(chan time.Time, 1)
	m.cfg.Now, m.cfg.RelaysChanged = func() time.Time { return now }, func() { changes.Add(1) }
	m.cfg.After = func(d time.Duration) <-chan time.Time {
		if d != relayTime {
			t.Errorf("it ends in %s", d)
		}
		return over
	}
	m.cfg.Holds = func(netip.Addr) bool { return false }
	at := netip.MustParsePrefix("10.8.0.0/29")
	m.cfg.Cluster = func() *model.Cluster { return &model.Cluster{Blocks: []model.AddressBlock{{CIDR: at, Node: "n1"}}} }
	rec := routed("db", "10.8.0.1")
	f := newVMFollower(m, rec)
	m.followers[rec.Key()] = f
	want := func(what, relays string, n int32) {
		t.Helper()
		if got := fmt.Sprint(m.Relays()); got != relays || changes.Load() != n {
			t.Errorf("%s: %s, want %s; told %d times, want %d", what, got, relays, changes.Load(), n)
		}
	}
	want("nothing is known", "[]", 0)
	f.setRelaySource()
	f.setRelaySource()
	want("awaited", "[{n1 10.8.0.1}]", 1)
	f.beginRelayEnd()
	now = now.Add(relayTime - time.Second)
	want("it has come", "[{n1 10.8.0.1}]", 1)
	now = now.Add(time.Second)
	want("a minute later", "[]", 1)
	f.setRelay(nil)
	want("the mesh is told", "[]", 2)

	now = time.Unix(2000, 0)
	f.setRelaySource()
	f.beginRelayEnd()
	want("once more", "[{n1 10.8.0.1}]", 3)
	end := f.relayEnds()
	over <- now
	<-end
	delete(m.followers, rec.Key())
	want("the attachment is gone", "[]", 3)
}

// TestRelaysOutliveAgent: the next agent accepts the relays of a killed agent from its first moment on, and no longer
// than a minute after the switch; it is the same after an orderly end, and a deleted attachment leaves none.
func TestRelaysOutliveAgent(t *testing.T) {
	rec := routed("db", "10.8.0.1")
	m := moverOf(t, rec)
	now := time.Unix(1000, 0)
	cfg := m.cfg
	cfg.RelayFile = filepath.Join(t.TempDir(), "relays.json")
	cfg.Now = func() time.Time { return now }
	cfg.After = func(time.Duration) <-chan time.Time { return nil }
	cfg.Holds = func(netip.Addr) bool { return true }
	at := netip.MustParsePrefix("10.8.0.0/29")
	cfg.Cluster = func() *model.Cluster { return &model.Cluster{Blocks: []model.AddressBlock{{CIDR: at, Node: "n1"}}} }
	want := func(what string, m *Mover, relays string) {
		t.Helper()
		if got := fmt.Sprint(m.Relays()); got != relays {
			t.Errorf("%s: %s, want %s", what, got, relays)
		}
	}
	const one = "[{n1 10.8.0.1}]"
	first := New(cfg)
	f := newVMFollower(first, rec)
	first.followers[rec.Key()] = f
	f.setRelaySource()

	awaiting := New(cfg) // the agent was killed during the switch
	want("before attachments are known", awaiting, one)
	run := func(m *Mover) (stop func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		if err := m.scan(ctx, &parts); err != nil {
			t.Fatal(err)
		}
		return func() { cancel(); parts.Wait() }
	}
	stop := run(awaiting)
	until := func(what string, ok func() bool) {
		t.Helper()
		for begin := time.Now(); !ok(); time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatal("not within 20s: " + what)
			}
		}
	}
	followed := awaiting.followers[rec.Key()]
	until("the end is set", func() bool { r := followed.relay.Load(); return r != nil && !r.until.IsZero() })
	want("the machine is here", awaiting, one)
	stop()
	want("the agent ends", awaiting, one)

	now = now.Add(relayTime - time.Second)
	next := New(cfg)
	want("almost a minute later", next, one)
	now = now.Add(time.Second)
	want("a minute later", next, "[]")
	stop = run(next)
	want("a minute later, known", next, "[]")
	stop()

	now = time.Unix(500, 0) // the clock was set back
	back := New(cfg)
	want("the clock was set back", back, one)
	now = now.Add(relayTime)
	want("a minute after that", New(cfg), one) // each agent starts a new minute
	stop = run(back)
	back.mu.Lock()
	back.endLocked(rec.Key())
	back.mu.Unlock()
	until("the attachment is gone", func() bool {
		b, err := os.ReadFile(cfg.RelayFile)
		return err == nil && string(b) == "[]\n"
	})
	stop()
	if err := os.WriteFile(cfg.RelayFile, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("the file is broken", New(cfg), "[]")
}
