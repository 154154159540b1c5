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
		o.sendFlowLocked(entryOf(flow.Record{}))
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

// Of a flood of dropped packets some are named in each second, and the others counted as lost; those of other hosts'
// namespaces are neither.
func TestDropFlood(t *testing.T) {
	now := time.Unix(1500000000, 0)
	o := New(Config{Level: flow.LevelDenied, Records: none{}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	o.running, o.names = true, newNames(o.cfg)
	o.names.setNodes(identity{space: 7})
	o.names.refresh()
	s := newStream(query{})
	o.streams[s] = true
	packet := []byte{ // IPv4, UDP, 192.0.2.9:1 to 10.42.1.2:2
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9, 10, 42, 1, 2, 0, 1, 0, 2, 0, 8, 0, 0,
	}
	const made = 3 * maxDrops
	for second := range 2 {
		for range made {
			o.dropped(drops.Drop{Reason: "IP_RPFILTER", Namespace: 7, Packet: packet})
			o.dropped(drops.Drop{Reason: "IP_RPFILTER", Namespace: 8, Packet: packet})
		}
		seen, lost := len(s.queue), o.source.lost().Drops
		if seen != (second+1)*maxDrops || lost != uint64((second+1)*(made-maxDrops)) {
			t.Errorf("after %d s: %d seen and %d lost of %d", second+1, seen, lost, (second+1)*made)
		}
		now = now.Add(time.Second)
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
