// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// missing is a recorder whose DELs fail as if a plugin's program was missing, as long as n is above 0.
func missing(n *atomic.Int32) *recorder {
	return &recorder{do: func(_ context.Context, verb string, _ attach.Job) error {
		if verb == "DEL" && n.Add(-1) >= 0 {
			return model.Errorf(model.CodeInvalidConf, "install it", "plugin %q: no such program", "theirs")
		}
		return nil
	}}
}

// TestFailedEntryIsRetried: a DEL that fails because a plugin's program is missing is done when that is back, whatever
// the error's code.
func TestFailedEntryIsRetried(t *testing.T) {
	var failures atomic.Int32
	failures.Store(2)
	rec := missing(&failures)
	socket := serve(t, rec)
	enqueue(t, socket, 1, delFrame("c"))
	names := entries(t, socket, 0)
	for range 20 { // it takes three seconds, and longer on a busy host
		if len(names) > 0 {
			names = entries(t, socket, 0)
		}
	}
	if len(names) != 0 {
		t.Errorf("left in the queue: %q", names)
	}
	if diff := cmp.Diff([]string{"DEL net eth0", "DEL net eth0", "DEL net eth0"}, rec.seen()); diff != "" {
		t.Error(diff)
	}
}

// TestOtherVersionWaits: an entry of another version of the protocol waits for an agent that reads it.
func TestOtherVersionWaits(t *testing.T) {
	rec := &recorder{}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	other := delFrame("c")
	other[4]++
	enqueue(t, socket, 1, other)
	enqueue(t, socket, 2, delFrame("c"))
	defer serveAt(t, rec, socket)()
	if diff := cmp.Diff([]string{wire.QueueName(1, 1)}, entries(t, socket, 1)); diff != "" {
		t.Error(diff)
	}
}

// TestAddWaitsForItsFailedDel: while the DEL of an attachment is queued, an ADD of the same one is refused: the DEL
// would delete it later. Others are not affected.
func TestAddWaitsForItsFailedDel(t *testing.T) {
	var failures atomic.Int32
	failures.Store(1 << 20)
	rec := missing(&failures)
	socket, ns := serve(t, rec), nettest.NS(t, "c")
	enqueue(t, socket, 1, delFrame("c"))
	for range 3 {
		if a := ask(t, socket, oneNetwork, ns, vars("ADD", "c")...); a.exit == 0 || a.fault.Code != int(model.CodeTryAgain) ||
			!strings.Contains(a.fault.Msg, wire.QueueName(1, 1)) {
			t.Errorf("ADD over a queued DEL: %+v", a)
		}
	}
	second := vars("ADD", "c")
	second[slices.Index(second, "CNI_IFNAME=eth0")] = "CNI_IFNAME=eth1"
	for _, env := range [][]string{second, vars("ADD", "other")} {
		if a := ask(t, socket, oneNetwork, ns, env...); a.exit != 0 {
			t.Errorf("ADD beside a queued DEL: %+v", a)
		}
	}
	failures.Store(0)
	if a := ask(t, socket, oneNetwork, ns, vars("ADD", "c")...); a.exit != 0 {
		t.Errorf("ADD after the plugin is back: %+v", a)
	}
	if names := entries(t, socket, 0); len(names) != 0 {
		t.Errorf("left in the queue: %q", names)
	}
}

// TestCollectedEntryIsDropped: a GC that has released all but the valid attachments makes their queued DELs
// unnecessary.
func TestCollectedEntryIsDropped(t *testing.T) {
	var failures atomic.Int32
	failures.Store(1 << 20)
	rec := missing(&failures)
	socket := serve(t, rec)
	enqueue(t, socket, 1, delFrame("gone"))
	enqueue(t, socket, 2, delFrame("valid"))
	conf := strings.Replace(oneNetwork, `"type"`,
		`"cni.dev/valid-attachments":[{"containerID":"valid","ifname":"eth0"}],"type"`, 1)
	conf = strings.Replace(conf, "1.0.0", "1.1.0", 1)
	if a := ask(t, socket, conf, nil, "CNI_COMMAND=GC", "CNI_PATH=/opt/cni/bin"); a.exit != 0 {
		t.Fatalf("GC: %+v", a)
	}
	if diff := cmp.Diff([]string{wire.QueueName(2, 1)}, entries(t, socket, 1)); diff != "" {
		t.Error(diff)
	}
}

// TestTwoWeeksOfRetries: a DEL that fails for two weeks, by a clock that the test sets, is retried after a second,
// then after twice the time, at most every five minutes, and is done when possible. A call of its container does not
// wait for the retry.
func TestTwoWeeksOfRetries(t *testing.T) {
	now := time.Unix(1e9, 0)
	tries, away := 0, true
	replay := func(context.Context, wire.Request) error {
		if tries++; away {
			return model.Errorf(model.CodeInvalidConf, "install it", "plugin %q: no such program", "theirs")
		}
		return nil
	}
	dir := filepath.Join(t.TempDir(), "queue")
	q, err := openQueue(dir, nil, slog.New(slog.DiscardHandler), func() time.Time { return now }, replay)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "1"+wire.QueueSuffix)
	if err := os.WriteFile(path, delFrame("c"), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := now
	for wait := time.Second; now.Sub(begin) < 14*24*time.Hour; wait = min(2*wait, maxRetry) {
		before := tries
		q.replayAll(t.Context(), "")
		if tries != before+1 {
			t.Fatalf("after %s: tried %d times, want once", now.Sub(begin), tries-before)
		}
		now = now.Add(wait - time.Millisecond)
		if q.replayAll(t.Context(), ""); tries != before+1 {
			t.Fatalf("after %s: tried before its time", now.Sub(begin))
		}
		if got := q.next(); got != time.Millisecond {
			t.Fatalf("after %s: the queue sleeps for %s", now.Sub(begin), got)
		}
		now = now.Add(time.Millisecond)
	}
	if least := 14 * 24 * 60 / 5; tries < least {
		t.Errorf("%d tries in two weeks, want %d", tries, least)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the DEL is lost: %v", err)
	}
	q.replayAll(t.Context(), "") // fails, and waits
	before := tries
	if q.replayAll(t.Context(), "c"); tries != before+1 {
		t.Error("a call of the container waits for the time of its DEL")
	}
	away = false
	now = now.Add(maxRetry)
	q.replayAll(t.Context(), "")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the DEL is done and its entry stays: %v", err)
	}
}
