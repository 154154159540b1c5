// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestFlushAgain: a flush that fails holds up neither links nor other flushes, which need not be requested again. It is
// logged once, and tried again until it is done.
func TestFlushAgain(t *testing.T) {
	host, err := Dial(nettest.NS(t, "node"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	logged, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logged.Close() })
	r := NewReaper(host, slog.New(slog.NewTextHandler(logged, nil)))
	one, bad := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
	flush := r.flush
	var tries, others atomic.Int32
	r.flush = func(flows []state.Flow) error {
		if !slices.ContainsFunc(flows, func(f state.Flow) bool { return f.ReplySrc == bad }) {
			others.Add(1)
		} else if len(flows) > 1 || tries.Add(1) <= 3 {
			return errors.New("as if the kernel refused")
		}
		return flush(flows)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	r.Flush([]state.Flow{{ReplySrc: bad}})
	r.Flush([]state.Flow{{ReplySrc: one}})
	if err := r.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if flushing, _ := r.Flushing([]netip.Addr{one}); flushing || others.Load() == 0 {
		t.Error("another flush is held up")
	}
	flushing, changed := r.Flushing([]netip.Addr{one, bad})
	if !flushing {
		t.Error("the flush that failed is forgotten")
	}
	for flushing {
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatal("the flush that failed is not tried again")
		}
		flushing, changed = r.Flushing([]netip.Addr{bad})
	}
	text, err := os.ReadFile(logged.Name())
	if got := strings.Count(string(text), "could not be flushed"); got != 1 || err != nil {
		t.Errorf("logged %d times, %v: %s", got, err, text)
	}
}
