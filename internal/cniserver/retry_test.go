// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/wire"
)

// missing is a recorder whose DELs fail as if a plugin's program was missing, as long as n is above 0.
func missing(n *atomic.Int32) *recorder {
	return &recorder{do: func(_ context.Context, verb string, _ attach.Job) error {
		if verb == "DEL" && n.Add(-1) >= 0 {
			return model.Faultf(model.CodeInvalidConf, "install it", "plugin %q: no such program", "theirs")
		}
		return nil
	}}
}

// A DEL that fails because a plugin's program is missing for a moment is done when it is back, whatever the error's code.
func TestFailedEntryIsRetried(t *testing.T) {
	var failures atomic.Int32
	failures.Store(2)
	rec := missing(&failures)
	socket := serve(t, rec)
	enqueue(t, socket, 1, delFrame("c"))
	names := entries(t, socket, 0)
	for range 20 { // it takes three seconds, and longer on a busy machine
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

// An entry of another version of the protocol waits for an agent that reads it.
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

// While the DEL of an attachment waits, an ADD of the same one is refused: the DEL would take it away later. Others go on.
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

// A GC that has undone everything but the valid attachments leaves nothing for their DELs to do.
func TestCollectedEntryIsDropped(t *testing.T) {
	var failures atomic.Int32
	failures.Store(1 << 20)
	rec := missing(&failures)
	socket := serve(t, rec)
	enqueue(t, socket, 1, delFrame("gone"))
	enqueue(t, socket, 2, delFrame("valid"))
	conf := strings.Replace(oneNetwork, `"type"`, `"cni.dev/valid-attachments":[{"containerID":"valid","ifname":"eth0"}],"type"`, 1)
	conf = strings.Replace(conf, "1.0.0", "1.1.0", 1)
	if a := ask(t, socket, conf, nil, "CNI_COMMAND=GC", "CNI_PATH=/opt/cni/bin"); a.exit != 0 {
		t.Fatalf("GC: %+v", a)
	}
	if diff := cmp.Diff([]string{wire.QueueName(2, 1)}, entries(t, socket, 1)); diff != "" {
		t.Error(diff)
	}
}
