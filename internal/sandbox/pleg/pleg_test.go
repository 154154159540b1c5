// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestCompare: the events between every two states.
func TestCompare(t *testing.T) {
	started, died, removed, changed := []Kind{ContainerStarted}, []Kind{ContainerDied}, []Kind{ContainerRemoved},
		[]Kind{ContainerChanged}
	states := []State{Running, Exited, Unknown, NonExistent}
	want := map[State]map[State][]Kind{
		Running:     {Exited: died, Unknown: changed, NonExistent: {ContainerDied, ContainerRemoved}},
		Exited:      {Running: started, Unknown: changed, NonExistent: removed},
		Unknown:     {Running: started, Exited: died, NonExistent: {ContainerDied, ContainerRemoved}},
		NonExistent: {Running: started, Exited: died, Unknown: changed},
	}
	list := func(s State) Pods {
		if s == NonExistent {
			return nil
		}
		return Pods{"pod": {"c": s}}
	}
	for _, old := range states {
		for _, now := range states {
			var got []Kind
			for _, e := range Compare(list(old), list(now)) {
				got = append(got, e.Kind)
			}
			if diff := cmp.Diff(want[old][now], got); diff != "" {
				t.Errorf("%s → %s: %s", old, now, diff)
			}
		}
	}
}

// TestReplay: replaying the events yields the running containers.
func TestReplay(t *testing.T) {
	pods := rapid.MapOf(rapid.SampledFrom([]string{"p", "q"}),
		rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]State{Running, Exited})))
	rapid.Check(t, func(t *rapid.T) {
		running := map[string]bool{}
		var old Pods
		for _, now := range rapid.SliceOfN(pods, 1, 6).Draw(t, "lists") {
			for _, e := range Compare(old, now) {
				switch e.Kind {
				case ContainerStarted:
					running[e.PodUID+e.ContainerID] = true
				case ContainerDied, ContainerRemoved:
					delete(running, e.PodUID+e.ContainerID)
				}
			}
			old = now
		}
		want := map[string]bool{}
		for uid, cs := range old {
			for id, s := range cs {
				if s == Running {
					want[uid+id] = true
				}
			}
		}
		if diff := cmp.Diff(want, running); diff != "" {
			t.Fatal(diff)
		}
	})
}

// fake is a fake clock and list.
type fake struct {
	now  time.Time
	pods Pods
	err  error
}

func (f *fake) relister(capacity int) *Relister {
	return New(Config{
		List: func(context.Context) (Pods, error) { return f.pods, f.err },
		Now:  func() time.Time { return f.now }, Threshold: time.Minute, Capacity: capacity,
	})
}

func TestFullChannelDiscardsAndCounts(t *testing.T) {
	f := &fake{pods: Pods{"p": {"a": Running, "b": Running, "c": Running, "d": Unknown}}}
	r := f.relister(2)
	r.Relist(context.Background())
	if got := r.Discarded(); got != 1 {
		t.Errorf("discarded %d, want 1", got)
	}
	var got []Event
	for range 2 {
		got = append(got, <-r.Watch())
	}
	want := []Event{{"p", "a", ContainerStarted}, {"p", "b", ContainerStarted}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r.filtered.Load() != 1 {
		t.Errorf("filtered %d, want 1: ContainerChanged is filtered out", r.filtered.Load())
	}
}

func TestHealthy(t *testing.T) {
	f := &fake{now: time.Unix(1000, 0)}
	r := f.relister(1)
	if ok, err := r.Healthy(); ok || err == nil {
		t.Error("healthy before the first list")
	}
	r.Relist(context.Background())
	f.now = f.now.Add(time.Minute)
	if ok, err := r.Healthy(); !ok {
		t.Errorf("a minute old: %v", err)
	}
	f.now = f.now.Add(time.Second)
	f.err = errors.New("the runtime is stuck")
	r.Relist(context.Background())
	if ok, err := r.Healthy(); ok || !errors.Is(err, f.err) {
		t.Errorf("lists that fail: healthy %v, %v", ok, err)
	}
	f.err = nil
	r.Relist(context.Background())
	if ok, err := r.Healthy(); !ok {
		t.Errorf("listed again: %v", err)
	}
}

func TestStart(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lists := make(chan struct{}, 100)
	r := New(Config{
		List:   func(context.Context) (Pods, error) { lists <- struct{}{}; return Pods{}, nil },
		Period: time.Millisecond, Now: time.Now,
	})
	var g Generator = r
	g.Start(ctx)
	for range 3 {
		select {
		case <-lists:
		case <-time.After(time.Minute):
			t.Fatal("it does not list again")
		}
	}
}
