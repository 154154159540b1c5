// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// noAttachments is an AttachmentStore without attachments: all pods are foreign.
type noAttachments struct{}

func (noAttachments) Keys(string) ([]model.AttachmentKey, error) { return nil, nil }
func (noAttachments) Get(model.AttachmentKey) (r attach.Record, _ bool, err error) {
	return r, false, nil
}
func (noAttachments) InNamespace(uint64) ([]attach.Record, error) { return nil, nil }

// pod is a namespace with an interface, as another plugin would make it.
func pod(t *testing.T) *netns.NS {
	t.Helper()
	nettest.Need(t, "tap")
	ns, far := nettest.NS(t, "pod"), nettest.NS(t, "far")
	nettest.Run(t, far, "ip", "link", "add", "wire", "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
	nettest.Run(t, ns, "ip", "addr", "add", "10.1.0.2/24", "dev", "eth0")
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	return ns
}

func newRegistry(t *testing.T, polls <-chan time.Time) *Registry {
	t.Helper()
	return newRegistryWith(t, polls, nil)
}

// newRegistryWith is newRegistry with a failpoint hook.
func newRegistryWith(t *testing.T, polls <-chan time.Time, step func(name string) error) *Registry {
	t.Helper()
	return New(Config{
		Phase1: phase1.Config{Dir: filepath.Join(t.TempDir(), "vm"), Step: step}, Attachments: noAttachments{},
		Log:         slog.New(slog.NewTextHandler(t.Output(), nil)),
		LockSandbox: func(context.Context, string) (func(), error) { return func() {}, nil },
		After:       func(time.Duration) <-chan time.Time { return polls },
	})
}

func body(t *testing.T, a host.Request) []byte {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// direct is a VM with one interface by weft-direct.
func direct() *plan.Input {
	return &plan.Input{
		Join: state.JoinMirred, VM: model.VM{Namespace: "shop", Name: "vm1", Path: "spec", Interfaces: []model.VMInterface{{
			Name: "default", Binding: model.VMDirect, Model: "virtio",
			Network: model.VMNetwork{Name: "default", Primary: true, Pod: true},
		}}},
	}
}

// TestCloseWhileAVMRuns: Close returns at once although VMs run, and the VM's network stays.
func TestCloseWhileAVMRuns(t *testing.T) {
	ns, m := pod(t), newRegistry(t, nil)
	answer, err := m.Start(t.Context(), ns, body(t, host.Request{Input: direct()}))
	if err != nil {
		t.Fatal(err)
	}
	var r phase1.Record
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if !m.local.Serving(r.VM, r.PodID) {
		t.Fatal("weft-guest is not served")
	}
	closed := make(chan error, 1)
	go func() { closed <- m.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Close does not return")
	}
	if err := r.Check(t.Context(), ns); err != nil || m.local.Serving(r.VM, r.PodID) {
		t.Errorf("network of the VM: %v; weft-guest is served: %t, want no error and false", err,
			m.local.Serving(r.VM, r.PodID))
	}
}

// TestRejoinGuest: a guest whose join was removed is joined to its pod's link by the next poll; when the VM is gone the
// polling ends.
func TestRejoinGuest(t *testing.T) {
	polls := make(chan time.Time)
	ns, m := pod(t), newRegistry(t, polls)
	defer func() { _ = m.Close() }()
	answer, err := m.Start(t.Context(), ns, body(t, host.Request{Input: direct()}))
	if err != nil {
		t.Fatal(err)
	}
	var r phase1.Record
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, ns, "tc", "qdisc", "del", "dev", "eth0", "ingress")
	if err := r.Check(t.Context(), ns); err == nil || !strings.Contains(err.Error(), "join") {
		t.Fatalf("the check does not find the missing join: %v", err)
	}
	for range 2 { // the second poll begins when the first has ended
		select {
		case polls <- time.Time{}:
		case <-time.After(time.Minute):
			t.Fatal("the registry does not poll")
		}
	}
	if err := r.Check(t.Context(), ns); err != nil {
		t.Error(err)
	}
	if _, err := m.Stop(t.Context(), ns, body(t, host.Request{VM: "shop/vm1"})); err != nil {
		t.Fatal(err)
	}
	select {
	case polls <- time.Time{}: // the last poll, if the polling has not ended
	case <-time.After(10 * time.Millisecond):
	}
	m.group.Wait()
}

// TestUndoRetried: a failed undo of a released attachment is retried by the next poll.
func TestUndoRetried(t *testing.T) {
	polls, broken, errBroken := make(chan time.Time), atomic.Bool{}, errors.New("not today")
	ns, m := pod(t), newRegistryWith(t, polls, func(name string) error {
		if broken.Load() && name == "remove network" {
			return errBroken
		}
		return nil
	})
	defer func() { _ = m.Close() }()
	if _, err := m.Start(t.Context(), ns, body(t, host.Request{Input: direct()})); err != nil {
		t.Fatal(err)
	}
	all, err := m.Records()
	if err != nil || len(all) != 1 {
		t.Fatalf("%v (%v)", all, err)
	}
	broken.Store(true)
	if err := m.Undo(t.Context(), all[0], ns, func(attach.Act) bool { return true }); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	broken.Store(false)
	if out := nettest.Run(t, ns, "ip", "-o", "link"); !strings.Contains(out, "tap0") {
		t.Fatalf("the failed undo left nothing: %s", out)
	}
	select {
	case polls <- time.Time{}:
	case <-time.After(time.Minute):
		t.Fatal("the registry does not poll")
	}
	m.group.Wait() // the polling has ended
	if all, err := m.Records(); err != nil || len(all) > 0 {
		t.Errorf("left: %v (%v)", all, err)
	}
	if out := nettest.Run(t, ns, "ip", "-o", "link"); strings.Contains(out, "tap0") {
		t.Errorf("left: %s", out)
	}
}
