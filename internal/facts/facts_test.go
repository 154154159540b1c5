// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/facts"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ticker is a source of which each change adds a node.
type ticker struct {
	events chan store.Event
	nodes  atomic.Int32
	reads  atomic.Int32
	broken atomic.Bool
}

func (s *ticker) Watch(ctx context.Context) (<-chan store.Event, error) {
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

func (s *ticker) Cluster(context.Context) (model.Cluster, error) {
	s.reads.Add(1)
	if s.broken.Load() {
		return model.Cluster{}, errors.New("broken")
	}
	return model.Cluster{Nodes: make([]model.Node, s.nodes.Load())}, nil
}

func (s *ticker) change() {
	s.nodes.Add(1)
	s.events <- store.Event{Type: store.Added}
}

func start(t *testing.T) (*ticker, *facts.Facts, func()) {
	s := &ticker{events: make(chan store.Event)}
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

func TestChangesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, stop := start(t)
		defer stop()
		<-f.Synced()
		changed, cancel := f.Subscribe()
		defer cancel()
		<-changed // the first snapshot
		for range 100 {
			s.change()
		}
		<-changed
		if n := len(f.Cluster().Nodes); n != 100 || s.reads.Load() != 2 {
			t.Errorf("%d nodes after %d reads, want 100 after 2", n, s.reads.Load())
		}
		begin := time.Now()
		for range 10 { // never quiet
			s.change()
			time.Sleep(15 * time.Millisecond)
		}
		if took := time.Since(begin); s.reads.Load() < 4 {
			t.Errorf("%d reads while changes went on for %s, want one every 50 ms", s.reads.Load(), took)
		}
	})
}

func TestSnapshotsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, stop := start(t)
		defer stop()
		<-f.Synced()
		first := f.Cluster()
		s.change()
		time.Sleep(time.Second)
		if len(first.Nodes) != 0 || len(f.Cluster().Nodes) != 1 || f.Cluster().Self != "me" {
			t.Errorf("first %v, now %v", first, f.Cluster())
		}
	})
}

func TestAnUnreadableSourceKeepsTheLastPicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, stop := start(t)
		defer stop()
		s.change()
		time.Sleep(time.Second)
		s.broken.Store(true)
		s.change()
		time.Sleep(time.Second)
		if n := len(f.Cluster().Nodes); n != 1 {
			t.Errorf("%d nodes while the source is broken, want the last picture's 1", n)
		}
		s.broken.Store(false)
		time.Sleep(3 * time.Second)
		if n := len(f.Cluster().Nodes); n != 2 {
			t.Errorf("%d nodes after the source came back, want 2", n)
		}
	})
}
