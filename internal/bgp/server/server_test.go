// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/bgp/speaker"
	"github.com/weft-net/weft/internal/bgp/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/bgp"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// counted counts how often all routes of a speaker are read.
type counted struct {
	*speaker.Speaker
	reads atomic.Int32
}

func (c *counted) Routes(ctx context.Context) ([]bgp.Route, error) {
	c.reads.Add(1)
	return c.Speaker.Routes(ctx)
}

// Routes are read after changes and rarely without one, not at each resync: with 10,000 of them that is 4 % of a CPU.
func TestReadsAfterChanges(t *testing.T) {
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	log := slog.New(slog.DiscardHandler)
	spoken := &counted{Speaker: speaker.New(log, time.Now)}
	tick, rarely := make(chan time.Time), make(chan time.Time)
	after := func(d time.Duration) <-chan time.Time {
		switch d {
		case resync:
			return tick
		case compareAll:
			return rarely
		}
		return time.After(d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	socket := filepath.Join(t.TempDir(), "bgp.sock")
	done := make(chan error)
	go func() { done <- New(socket, spoken, log, after).Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var conn *wire.Conn
	for conn == nil {
		if c, err := net.Dial("unix", socket); err == nil {
			conn = wire.NewConn(c)
		}
	}
	defer func() { _ = conn.Close() }()
	receive := func(holds func(wire.Update) bool) {
		t.Helper()
		for {
			var u wire.Update
			if err := conn.Receive(&u); err != nil {
				t.Fatal(err)
			}
			if holds(u) {
				return
			}
		}
	}
	announce := func(prefix string) {
		t.Helper()
		err := conn.Send(wire.Request{
			Version: wire.Version, Self: "n1", Own: []netip.Prefix{netip.MustParsePrefix(prefix)},
			Nodes: []model.Node{{Name: "n1", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		receive(func(u wire.Update) bool {
			return u.Plan != nil && len(u.Plan.Announced) == 1 && u.Plan.Announced[0].Prefix.String() == prefix
		})
	}
	// ticks ends when the server waits for the tick after the last one.
	ticks := func(n int) {
		for range n + 1 {
			tick <- time.Time{}
		}
	}
	// quiet ticks until routes are not read any more, and returns how often they were.
	quiet := func() int32 {
		for {
			before := spoken.reads.Load()
			if ticks(3); spoken.reads.Load() == before {
				return before
			}
		}
	}
	announce("10.244.1.0/24")
	before := quiet()
	ticks(100)
	if now := spoken.reads.Load(); now != before {
		t.Errorf("100 resyncs without a change read all routes %d times", now-before)
	}
	announce("10.244.2.0/24")
	after2 := quiet()
	if after2 == before {
		t.Error("routes are not read after a change")
	}
	rarely <- time.Time{}
	ticks(1)
	if now := spoken.reads.Load(); now == after2 {
		t.Error("routes are never read without a change")
	}
}
