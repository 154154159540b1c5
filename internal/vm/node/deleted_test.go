// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// TestDeletedNamespaceEnds: a pod's namespace that is deleted while a VM runs in it ends, and with it its links: what
// waits for weft-guest there is closed.
func TestDeletedNamespaceEnds(t *testing.T) {
	ns := pod(t)
	nettest.Run(t, nil, "ip", "link", "add", "gone0", "type", "veth", "peer", "name", "other", "netns", ns.Path())
	m := New(Config{
		Phase1: phase1.Config{Dir: filepath.Join(t.TempDir(), "vm")}, Attachments: noAttachments{},
		Log:         slog.New(slog.NewTextHandler(t.Output(), nil)),
		LockSandbox: func(context.Context, string) (func(), error) { return func() {}, nil },
		Deletions:   nettest.Deletions(t),
		After:       func(time.Duration) <-chan time.Time { return nil }, // nothing is looked at
	})
	defer func() { _ = m.Close() }()
	answer, err := m.Start(t.Context(), ns, body(t, host.Request{Input: direct()}))
	if err != nil {
		t.Fatal(err)
	}
	var r phase1.Record
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if !m.local.Serving(r.VM, r.PodID) {
		t.Fatal("the VM is not served")
	}
	if err := errors.Join(ns.Close(), netns.Remove(ns.Path())); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := nettest.Try(nil, "ip", "link", "show", "gone0"); err != nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the namespace lives on")
		}
	}
	if m.local.Serving(r.VM, r.PodID) {
		t.Error("the VM of a deleted pod is still served")
	}
}
