// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/nettest"
)

// However many readers do not read, the flows that wait for them are bounded, and each is counted as lost for the readers
// that miss it. Changes of names are not flows: they are always queued.
func TestManyReaders(t *testing.T) {
	o := New(Config{Level: flow.LevelOff, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	for range maxReaders {
		if err := o.admit(); err != nil {
			t.Fatal(err)
		}
		o.streams[newStream(query{})] = true
	}
	if err := o.admit(); err == nil {
		t.Error("there is no limit")
	}
	o.leave()
	if err := o.admit(); err != nil {
		t.Error(err)
	}
	const made = queueSize
	for range made {
		o.sendLocked([]flow.Line{{Flow: &flow.Record{}}})
	}
	o.sendLocked([]flow.Line{{Holder: &flow.Holder{}}})
	waiting := 0
	for s := range o.streams {
		flows := len(s.queue) - 1
		waiting += flows
		if got := flows + int(s.dropped.Load()); got != made || s.broken.Load() {
			t.Fatalf("%d of %d flows are queued or lost, broken %t", got, made, s.broken.Load())
		}
	}
	if waiting > queuedSize {
		t.Errorf("%d flows wait, %d at most", waiting, queuedSize)
	}
}

// What sockets have lost is added up over sockets, and over the end of the kernel's counter.
func TestCounter(t *testing.T) {
	var c counter
	for _, step := range []struct {
		reopened  bool
		now, want uint64
	}{{false, 5, 5}, {false, 1<<32 - 1, 1<<32 - 1}, {false, 3, 1<<32 + 3}, {true, 0, 1<<32 + 3}, {false, 7, 1<<32 + 10}} {
		if step.reopened {
			c.last = 0
		}
		if c.read(step.now); c.sum != step.want {
			t.Fatalf("%d after %+v", c.sum, step)
		}
	}
}

// none are the records of a node without endpoints.
type none struct{}

func (none) List() ([]attach.Record, error) { return nil, nil }
func (none) Version() uint64                { return 0 }

// A socket that has failed is replaced for the next reader.
func TestReopened(t *testing.T) {
	o := New(Config{
		NS: nettest.NS(t, "n"), Records: none{}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Drops: func(func(drops.Drop)) (*drops.Session, error) { return nil, errors.New("not in this test") },
	})
	first, err := o.open(query{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.close(first)
	first.events.Close()
	second, err := o.open(query{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.close(second)
	select {
	case <-second.events.Done():
		t.Error("its socket has failed, too")
	default:
	}
}
