// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/attach"
	"github.com/weft-net/weft/internal/ledger"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/store"
	"github.com/weft-net/weft/internal/store/dir"
)

// moverOf is a mover of node n2 that knows the records, with a store of its own.
func moverOf(t *testing.T, records ...attach.Record) *Mover {
	t.Helper()
	l, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := l.PutAll(records); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Node: "n2", Records: l, Objects: s.Objects(), Cluster: func() *model.Cluster { return nil },
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
}

// routed is the finished attachment of a machine that runs here.
func routed(name, addr string) attach.Record {
	link := func(name string) state.Link { return state.Link{Name: name, Kind: state.Veth} }
	host, ip := link("cali"+name), netip.MustParseAddr(addr)
	host.Peer = &state.Peer{Space: state.Pod, Name: "eth0"}
	own := 0
	return attach.Record{
		Version: attach.RecordVersion, Stage: attach.Done, Serial: 1,
		Request: model.Request{Network: "pods", ContainerID: name, IfName: "eth0", Netns: "/nowhere", Args: [][2]string{{"WEFT_VM", "default/" + name}}},
		Acts:    []attach.Act{{Kind: attach.ActApply, Fragment: &state.Fragment{Host: state.Space{Links: []state.Link{host}}}}},
		Result: &model.Result{
			Interfaces: []model.Interface{{Name: "eth0", Sandbox: "/nowhere"}},
			IPs:        []model.IP{{Address: netip.PrefixFrom(ip, ip.BitLen()), Interface: &own}},
		},
	}
}

// asks writes a move for the machine of a record, as a node that awaits it does.
func (m *Mover) asks(t *testing.T, rec attach.Record, target string) store.Object {
	t.Helper()
	f := newFollower(m, rec)
	o, err := store.AddressMoveObject(store.Object{}, model.AddressMove{
		Namespace: f.move.Namespace, Name: f.move.Name, Machine: f.vm.Name, Addrs: f.addrs, Target: target, Source: "n1", Left: true,
	})
	if err == nil {
		o, err = m.cfg.Objects.Create(t.Context(), store.AddressMoves(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestMoveEnds: the move of a machine that is here by now goes, though the agent that switched was killed before it took it away.
func TestMoveEnds(t *testing.T) {
	rec := routed("db", "10.1.0.5")
	m := moverOf(t, rec)
	o := m.asks(t, rec, "n2")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := m.cfg.Objects.Get(ctx, store.AddressMoves(), o.Key)
		if errors.Is(err, store.ErrNotFound) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the move is still there: %v", err)
		}
	}
}

// TestWakes: who is not concerned by a move is not woken by it.
func TestWakes(t *testing.T) {
	db, web := routed("db", "10.1.0.5"), routed("web", "10.1.0.6")
	m := moverOf(t)
	o := m.asks(t, db, "n3")
	for _, rec := range []attach.Record{db, web} {
		m.followers[rec.Key()] = newFollower(m, rec)
	}
	woken := func(rec attach.Record) bool {
		select {
		case <-m.followers[rec.Key()].wake:
			return true
		default:
			return false
		}
	}
	m.take(store.Event{Type: store.Added, Object: o})
	if woken(db) || woken(web) {
		t.Error("somebody is woken before all is known")
	}
	m.take(store.Event{Type: store.Synced})
	if !woken(db) || !woken(web) {
		t.Error("somebody is not woken when all is known")
	}
	for _, e := range []store.EventType{store.Modified, store.Deleted} {
		if m.take(store.Event{Type: e, Object: o}); !woken(db) || woken(web) {
			t.Errorf("%s: the wrong ones are woken", e)
		}
	}
}
