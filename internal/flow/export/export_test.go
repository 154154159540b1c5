// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/flow/export"
	"github.com/weft-net/weft/internal/model"
)

// record is a flow whose source port numbers it.
func record(port uint16) flow.Record {
	return flow.Record{
		Time: time.UnixMilli(1_800_000_000_123).UTC(), Node: "node1", Kind: flow.New, Protocol: "tcp", Direction: flow.Egress,
		Verdict: flow.Allowed,
		From: flow.Endpoint{
			Addr: netip.MustParseAddr("10.42.1.2"), Port: port, Identity: flow.Identity{Kind: flow.PodEnd, Name: "shop/web"},
		},
		To: flow.Endpoint{
			Addr: netip.MustParseAddr("10.42.2.9"), Port: 5432, Identity: flow.Identity{Kind: flow.PodEnd, Name: "shop/db"},
		},
	}
}

// sink is a receiver whose answers the test chooses.
type sink struct {
	mu     sync.Mutex
	got    []uint16
	answer func(n int) (int, error)
	closed int
}

func (s *sink) Write(_ context.Context, batch []flow.Record) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := len(batch), error(nil)
	if s.answer != nil {
		n, err = s.answer(n)
	}
	for _, r := range batch[:n] {
		s.got = append(s.got, r.From.Port)
	}
	return n, err
}

func (s *sink) Close() error   { s.closed++; return nil }
func (s *sink) String() string { return "sink" }

// run runs an exporter until it has sent or lost n flows.
func run(t *testing.T, e *export.Exporter, n uint64) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	for until := time.Now().Add(time.Minute); e.Sent()+e.Lost() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d sent and %d lost of %d", e.Sent(), e.Lost(), n)
		}
	}
	cancel()
	return <-ended
}

// TestEveryFlowIsCounted: a receiver that is away, takes parts of batches, or refuses one. Each flow is sent once, in
// order, or counted as lost.
func TestEveryFlowIsCounted(t *testing.T) {
	calls := 0
	s := &sink{answer: func(n int) (int, error) {
		calls++
		switch calls {
		case 1:
			return 0, errors.New("away")
		case 2:
			return 3, errors.New("half of it")
		case 4:
			return 2, export.ErrRefused
		}
		return n, nil
	}}
	e := export.New(s, slog.New(slog.DiscardHandler))
	const all = 2000
	for i := range all {
		e.Put(record(uint16(i)))
	}
	if err := run(t, e, all); err != nil {
		t.Fatal(err)
	}
	if e.Sent()+e.Lost() != all || e.Lost() != 510 || uint64(len(s.got)) != e.Sent() || s.closed != 1 {
		t.Errorf("%d sent, %d arrived, %d lost of %d; closed %d times", e.Sent(), len(s.got), e.Lost(), all, s.closed)
	}
	for i := 1; i < len(s.got); i++ {
		if s.got[i] <= s.got[i-1] {
			t.Fatalf("flow %d arrived after %d", s.got[i], s.got[i-1])
		}
	}
}

// TestReceiverAway: the queue is bounded, and what it cannot hold is lost and counted, also when the agent ends.
func TestReceiverAway(t *testing.T) {
	s := &sink{answer: func(int) (int, error) { return 0, errors.New("away") }}
	e := export.New(s, slog.New(slog.DiscardHandler))
	const all = 40000
	for i := range all {
		e.Put(record(uint16(i)))
	}
	lost := e.Lost()
	if lost == 0 || lost >= all {
		t.Fatalf("%d of %d are lost while nothing is sent", lost, all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx); err != nil {
		t.Error(err) // the agent has not failed
	}
	if e.Sent() != 0 || e.Lost() != all {
		t.Errorf("%d sent, %d lost of %d", e.Sent(), e.Lost(), all)
	}
}

// TestEnd: what is queued when the agent ends is sent.
func TestEnd(t *testing.T) {
	s := &sink{}
	e := export.New(s, slog.New(slog.DiscardHandler))
	for i := range 1500 {
		e.Put(record(uint16(i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx); err != nil || len(s.got) != 1500 || e.Lost() != 0 {
		t.Errorf("%d of 1500 arrived, %d lost: %v", len(s.got), e.Lost(), err)
	}
}

// TestWrongConfigurations: each error names the value, and what is right.
func TestWrongConfigurations(t *testing.T) {
	const size = 1 << 20
	for want, err := range map[string]error{
		`path "flows.json" is not absolute`: export.FileConfig{Path: "flows.json", MaxBytes: size}.Check(),
		"maxBytes":                          export.FileConfig{Path: "/f", MaxBytes: 1}.Check(),
		"keep":                              export.FileConfig{Path: "/f", MaxBytes: size, Keep: -1}.Check(),
		`address "collector:4739"`:          export.IPFIXConfig{Address: "collector:4739"}.Check(),
		`address "http://c"`:                export.IPFIXConfig{Address: "http://c"}.Check(),
		`address "udp://"`:                  export.IPFIXConfig{Address: "udp://"}.Check(),
		`url "collector:4318"`:              export.OTLPConfig{URL: "collector:4318"}.Check(),
	} {
		var m *model.Error
		if err == nil || !contains(err.Error(), want) || !errors.As(err, &m) || m.Hint == "" {
			t.Errorf("want an error about %s, with a hint: %v", want, err)
		}
	}
}
