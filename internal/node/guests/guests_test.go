// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestWiresAgain: a guest whose service ends with an error is served again after a pause, unless its attachment changed
// or its pod is gone.
func TestWiresAgain(t *testing.T) {
	nettest.EndToEnd(t)
	l, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	record := func(id string, serial int64) attach.Record {
		r := attach.Record{
			Serial: serial, Stage: attach.Done, Request: model.Request{Network: "net", ContainerID: id, IfName: "eth0"},
			Acts: []attach.Act{{Kind: attach.ActApply, Guests: []model.GuestConfig{{Link: "cali1"}}}},
		}
		if err := l.Put(r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	var log strings.Builder
	pauses, runs := make(chan time.Duration), make(chan string)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w := New(Config{
		Records: l, Log: slog.New(slog.NewTextHandler(&log, nil)),
		After: func(d time.Duration) <-chan time.Time {
			fired := make(chan time.Time, 1)
			fired <- time.Time{}
			pauses <- d
			return fired
		},
	})
	tries := 0
	w.run = func(ctx context.Context, r attach.Record) error {
		if r.Request.ContainerID == "gone" {
			runs <- "gone"
			return fmt.Errorf("its pod: %w", netns.ErrGone)
		}
		runs <- fmt.Sprint(r.Request.ContainerID, " ", r.Serial)
		if tries++; tries < 4 {
			return errors.New("the wire is mute")
		}
		<-ctx.Done()
		return nil
	}
	next := func(want string) {
		t.Helper()
		select {
		case got := <-runs:
			if got != want {
				t.Fatalf("%s is served, want %s", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("%s is not served", want)
		}
	}
	r := record("c1", 1)
	w.Start(ctx)
	for range 3 {
		next("c1 1")
		if d := <-pauses; d != retryPause {
			t.Errorf("it is waited for %s", d)
		}
	}
	next("c1 1")
	record("c1", 2)
	w.Changed(r.Key())
	next("c1 2")
	w.Changed(record("gone", 3).Key())
	next("gone")
	cancel()
	w.Wait()
	if n := strings.Count(log.String(), "the wire is mute"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, log.String())
	}
}
