// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source sends the events of its channel.
type source struct{ events chan store.Event }

func (s source) Watch(ctx context.Context) (<-chan store.Event, error) {
	out := make(chan store.Event)
	go func() {
		defer close(out)
		for {
			select {
			case e := <-s.events:
				out <- e
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (s source) node(t *testing.T, kind store.EventType, i int) {
	t.Helper()
	o, err := store.NodeObject(model.Node{Name: fmt.Sprintf("n%d", i)})
	if err != nil {
		t.Fatal(err)
	}
	s.events <- store.Event{Type: kind, Object: o}
}

func start(t *testing.T) (source, *facts.Facts, func()) {
	s := source{make(chan store.Event)}
	f := facts.New(s, "me", slog.New(slog.DiscardHandler), time.After)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	return s, f, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// away is a source that is unavailable for some attempts.
type away struct {
	source
	attempts *int
}

func (a away) Watch(ctx context.Context) (<-chan store.Event, error) {
	if *a.attempts--; *a.attempts >= 0 {
		return nil, errors.New("no such directory")
	}
	return a.source.Watch(ctx)
}

// A source that is unavailable at the start is watched once it is there; waiting for it ends with the context.
func TestSourceIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 5
		s := away{source{make(chan store.Event)}, &attempts}
		f := facts.New(s, "me", slog.New(slog.DiscardHandler), time.After)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		s.node(t, store.Added, 1)
		s.events <- store.Event{Type: store.Synced}
		<-f.Synced()
		if n := len(f.Cluster().Nodes); n != 1 {
			t.Errorf("%d nodes", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		attempts = 1000
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.Run(ctx); err != nil || attempts > 950 {
			t.Errorf("%v, %d attempts left", err, attempts)
		}
	})
}

func TestNoSnapshotBeforeSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, stop := start(t)
		defer stop()
		s.node(t, store.Added, 1)
		s.node(t, store.Added, 2)
		time.Sleep(time.Minute)
		if f.Cluster() != nil {
			t.Error("a snapshot of half of what there is")
		}
		s.events <- store.Event{Type: store.Synced}
		<-f.Synced()
		if c := f.Cluster(); len(c.Nodes) != 2 || c.Self != "me" || c.Nodes[0].Name != "n1" {
			t.Errorf("first snapshot %+v", c)
		}
	})
}

func TestChangesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, stop := start(t)
		defer stop()
		s.events <- store.Event{Type: store.Synced}
		<-f.Synced()
		changed, cancel := f.Subscribe()
		defer cancel()
		<-changed // the first snapshot
		first := f.Cluster()
		for i := range 100 {
			s.node(t, store.Added, i)
		}
		begin := time.Now()
		<-changed
		if n := len(f.Cluster().Nodes); n != 100 || time.Since(begin) > 20*time.Millisecond {
			t.Errorf("%d nodes after %s, want 100 after 20 ms", n, time.Since(begin))
		}
		if len(first.Nodes) != 0 {
			t.Error("the first snapshot was changed")
		}
		seen := 0
		for i := range 10 { // never quiet
			s.node(t, store.Deleted, i)
			time.Sleep(15 * time.Millisecond)
			select {
			case <-changed:
				seen++
			default:
			}
		}
		if seen < 2 || seen > 4 {
			t.Errorf("%d snapshots while changes went on for 150 ms, want one every 50 ms", seen)
		}
		time.Sleep(time.Second)
		if n := len(f.Cluster().Nodes); n != 90 {
			t.Errorf("%d nodes in the end, want 90", n)
		}
	})
}

func TestAFaultChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, stop := start(t)
		defer stop()
		s.node(t, store.Added, 1)
		s.events <- store.Event{Type: store.Synced}
		<-f.Synced()
		before := f.Cluster()
		s.events <- store.Event{Type: store.Faulty, Err: errors.New("broken")}
		time.Sleep(time.Minute)
		if f.Cluster() != before {
			t.Error("a new snapshot for nothing")
		}
	})
}
