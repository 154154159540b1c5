// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// moverOf returns a Mover of node n2 with these records and its own store.
func moverOf(t *testing.T, records ...attach.Record) *Mover {
	t.Helper()
	l, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := l.Put(records...); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	host, err := kernel.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	return New(Config{
		Node: "n2", Records: l, Host: host, Objects: s.Objects(), Cluster: func() *model.Cluster { return nil },
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
}

// routed is the finished attachment of a VM that runs here.
func routed(name, addr string) attach.Record {
	link := func(name string) state.Link { return state.Link{Name: name, Kind: state.Veth} }
	host, ip := link("cali"+name), netip.MustParseAddr(addr)
	host.Peer = &state.Peer{Space: state.Pod, Name: "eth0"}
	own := 0
	return attach.Record{
		Version: attach.RecordVersion, Stage: attach.Done, Serial: 1,
		Request: model.Request{
			Network: "pods", ContainerID: name, IfName: "eth0", Netns: "/nowhere",
			Args: [][2]string{{"WEFT_VM", "default/" + name}},
		},
		Acts: []attach.Act{{Kind: attach.ActApply, Fragment: &state.Fragment{Host: state.Space{Links: []state.Link{host}}}}},
		Result: &model.Result{
			Interfaces: []model.Interface{{Name: "eth0", Sandbox: "/nowhere"}},
			IPs:        []model.IP{{Address: netip.PrefixFrom(ip, ip.BitLen()), Interface: &own}},
		},
	}
}

// asks writes a move for the VM of a record, as the awaiting node does.
func (m *Mover) asks(t *testing.T, rec attach.Record, target string, left bool) store.Object {
	t.Helper()
	f := newVMFollower(m, rec)
	if target != m.cfg.Node { // it has another attachment
		f.move.Name = "at-" + target
	}
	o, err := store.AddressMoveObject(store.Object{}, model.AddressMove{
		Namespace: f.move.Namespace, Name: f.move.Name, VM: f.vm.Name, Addrs: f.addrs, Target: target,
		Source: "n1", Departed: left,
	})
	if err == nil {
		o, err = m.cfg.Objects.Create(t.Context(), store.AddressMoves(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// runs runs the Mover for the duration of the test.
func (m *Mover) runs(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// TestMoveEnds: the move of a VM that is here is deleted, even if the agent that switched was killed before.
func TestMoveEnds(t *testing.T) {
	rec := routed("db", "10.1.0.5")
	m := moverOf(t, rec)
	o := m.asks(t, rec, "n2", true)
	m.runs(t)
	until(t, "the move is still there", func() bool {
		_, err := m.cfg.Objects.Get(t.Context(), store.AddressMoves(), o.Key)
		return errors.Is(err, store.ErrNotFound)
	})
}

// TestLeft: a node that awaits a VM learns that it has left when its attachment here ends, whether it began to wait
// before or after that.
func TestLeft(t *testing.T) {
	for name, early := range map[string]bool{"awaited before": true, "awaited later": false} {
		t.Run(name, func(t *testing.T) {
			rec := routed("db", "10.1.0.5")
			m := moverOf(t, rec, routed("web", "10.1.0.6"))
			var o store.Object
			if early {
				o = m.asks(t, rec, "n3", false)
			}
			m.runs(t)
			follows := func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.synced && m.followers[rec.Key()] != nil && (!early || len(m.moves) == 1)
			}
			until(t, "the attachment is not followed", follows)
			if err := m.cfg.Records.(*ledger.Ledger).Delete(rec.Key()); err != nil {
				t.Fatal(err)
			}
			m.Moved(rec.Key())
			until(t, "the attachment is still followed", func() bool { return !follows() })
			if !early {
				until(t, "nobody remembers the machine", func() bool {
					m.mu.Lock()
					defer m.mu.Unlock()
					return len(m.departed) == 1
				})
				o = m.asks(t, rec, "n3", false)
			}
			until(t, "nobody says that the machine has left", func() bool {
				now, err := m.cfg.Objects.Get(t.Context(), store.AddressMoves(), o.Key)
				if err != nil {
					t.Fatal(err)
				}
				move, err := now.AddressMove()
				return err == nil && move.Departed && move.Source == "n2"
			})
		})
	}
}

// TestMeans: which packets show that a VM is here; for one that has left, only those that cannot have been in flight.
func TestMeans(t *testing.T) {
	m := moverOf(t)
	now := time.Unix(1000, 0)
	m.cfg.Now = func() time.Time { return now }
	f := newVMFollower(m, routed("db", "10.1.0.5"))
	f.mac = [6]byte{2, 0, 0, 0, 0, 5}
	own, other := netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("10.1.0.6")
	for name, c := range map[string]struct {
		said        watch.HeardAnnouncement
		first, back bool // of one that was never here, and of one that returns
	}{
		"its address":         {watch.HeardAnnouncement{How: "arp", MAC: f.mac, Addr: own}, true, true},
		"another's address":   {watch.HeardAnnouncement{How: "nd", MAC: f.mac, Addr: other}, false, false},
		"its hypervisor":      {watch.HeardAnnouncement{How: "rarp", MAC: f.mac}, true, true},
		"another MAC":         {watch.HeardAnnouncement{How: "rarp", MAC: [6]byte{2}}, false, false},
		"a packet":            {watch.HeardAnnouncement{How: "ip", MAC: f.mac, Addr: own}, false, true},
		"a packet of another": {watch.HeardAnnouncement{How: "ip", MAC: f.mac, Addr: other}, false, false},
	} {
		if got := f.showsVM(nil)(c.said); got != c.first {
			t.Errorf("%s, of a machine that was never here: %v", name, got)
		}
		if f.showsVM(&now)(c.said) {
			t.Errorf("%s, just after the machine has left: it counts", name)
		}
		before := now.Add(-quietTime)
		if got := f.showsVM(&before)(c.said); got != c.back {
			t.Errorf("%s, when the machine has left: %v", name, got)
		}
	}
}

// TestLeftWhenTheClockIsSet: when a VM left is measured by the monotonic clock. Otherwise packets of a VM that returns
// after the clock was set back would be ignored until the clock is where it was.
func TestLeftWhenTheClockIsSet(t *testing.T) {
	m := moverOf(t)
	f := newVMFollower(m, routed("db", "10.1.0.5"))
	f.leaves()
	wall := f.left.Load().Round(0)
	if *f.left.Load() == wall {
		t.Error("the monotonic reading is lost")
	}
	if d := f.leftFor(); d < 0 || d > time.Hour {
		t.Errorf("the VM left %s ago", d)
	}
}

// TestWakes: a move wakes only the followers that it concerns.
func TestWakes(t *testing.T) {
	db, web := routed("db", "10.1.0.5"), routed("web", "10.1.0.6")
	m := moverOf(t)
	o := m.asks(t, db, "n3", false)
	for _, rec := range []attach.Record{db, web} {
		m.followers[rec.Key()] = newVMFollower(m, rec)
	}
	woken := func(rec attach.Record) bool {
		select {
		case <-m.followers[rec.Key()].wake:
			return true
		default:
			return false
		}
	}
	m.handleEvent(store.Event{Type: store.Added, Object: o})
	if woken(db) || woken(web) {
		t.Error("somebody is woken before all is known")
	}
	m.handleEvent(store.Event{Type: store.Synced})
	if !woken(db) || !woken(web) {
		t.Error("somebody is not woken when all is known")
	}
	for _, e := range []store.EventType{store.Modified, store.Deleted} {
		if m.handleEvent(store.Event{Type: e, Object: o}); !woken(db) || woken(web) {
			t.Errorf("%s: the wrong ones are woken", e)
		}
	}
}
