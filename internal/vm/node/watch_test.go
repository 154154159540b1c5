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

// stranger knows no attachment: the pods are others'.
type stranger struct{}

func (stranger) Keys(string) ([]model.AttachmentKey, error)                   { return nil, nil }
func (stranger) Get(model.AttachmentKey) (r attach.Record, _ bool, err error) { return r, false, nil }
func (stranger) InNamespace(uint64) ([]attach.Record, error)                  { return nil, nil }

// pod is a namespace with an interface, as another's plugin has made it.
func pod(t *testing.T) *netns.NS {
	t.Helper()
	nettest.Need(t, "tap")
	ns, far := nettest.NS(t, "pod"), nettest.NS(t, "far")
	nettest.Run(t, far, "ip", "link", "add", "wire", "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
	nettest.Run(t, ns, "ip", "addr", "add", "10.1.0.2/24", "dev", "eth0")
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	return ns
}

func machines(t *testing.T, looks <-chan time.Time) *Machines {
	t.Helper()
	return machinesThat(t, looks, nil)
}

// machinesThat call step before each thing that is done.
func machinesThat(t *testing.T, looks <-chan time.Time, step func(name string) error) *Machines {
	t.Helper()
	return New(Config{
		Phase1: phase1.Config{Dir: filepath.Join(t.TempDir(), "vm"), Step: step}, Memory: stranger{},
		Log:   slog.New(slog.NewTextHandler(t.Output(), nil)),
		Hold:  func(context.Context, string) (func(), error) { return func() {}, nil },
		After: func(time.Duration) <-chan time.Time { return looks },
	})
}

func ask(t *testing.T, a host.Ask) []byte {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// direct is a machine with one interface by weft-direct.
func direct() *plan.Input {
	return &plan.Input{
		Join: state.JoinMirred, VM: model.VM{Namespace: "shop", Name: "vm1", Path: "spec", Interfaces: []model.VMInterface{{
			Name: "default", Binding: model.VMDirect, Model: "virtio",
			Network: model.VMNetwork{Name: "default", Primary: true, Pod: true},
		}}},
	}
}

// TestCloseWhileAMachineRuns: an agent ends at once, whatever runs on its node. The machine's network stays.
func TestCloseWhileAMachineRuns(t *testing.T) {
	ns, m := pod(t), machines(t, nil)
	answer, err := m.Start(t.Context(), ns, ask(t, host.Ask{Input: direct()}))
	if err != nil {
		t.Fatal(err)
	}
	var r phase1.Record
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if !m.local.Attended(r.Machine, r.In) {
		t.Fatal("the machine's wires are not given to weft-guest")
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
	if err := r.Still(t.Context(), ns); err != nil || m.local.Attended(r.Machine, r.In) {
		t.Errorf("network of the machine: %v; wires given: %t, want no error and false", err,
			m.local.Attended(r.Machine, r.In))
	}
}

// TestCutGuest: a guest that somebody has cut off from its pod's link is joined to it when the machine is looked at;
// when the machine has left nobody looks any more.
func TestCutGuest(t *testing.T) {
	looks := make(chan time.Time)
	ns, m := pod(t), machines(t, looks)
	defer func() { _ = m.Close() }()
	answer, err := m.Start(t.Context(), ns, ask(t, host.Ask{Input: direct()}))
	if err != nil {
		t.Fatal(err)
	}
	var r phase1.Record
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, ns, "tc", "qdisc", "del", "dev", "eth0", "ingress")
	if err := r.Still(t.Context(), ns); err == nil || !strings.Contains(err.Error(), "join") {
		t.Fatalf("nobody sees that it is cut: %v", err)
	}
	for range 2 { // the second look begins when the first has ended
		select {
		case looks <- time.Time{}:
		case <-time.After(time.Minute):
			t.Fatal("nobody looks")
		}
	}
	if err := r.Still(t.Context(), ns); err != nil {
		t.Error(err)
	}
	if _, err := m.Stop(t.Context(), ns, ask(t, host.Ask{Machine: "shop/vm1"})); err != nil {
		t.Fatal(err)
	}
	select {
	case looks <- time.Time{}: // the one that ends it, if it has not ended
	case <-time.After(10 * time.Millisecond):
	}
	m.group.Wait()
}

// TestUndoneLater: what could not be undone when an attachment ended is undone when the machine is looked at.
func TestUndoneLater(t *testing.T) {
	looks, broken, errBroken := make(chan time.Time), atomic.Bool{}, errors.New("not today")
	ns, m := pod(t), machinesThat(t, looks, func(name string) error {
		if broken.Load() && name == "remove network" {
			return errBroken
		}
		return nil
	})
	defer func() { _ = m.Close() }()
	if _, err := m.Start(t.Context(), ns, ask(t, host.Ask{Input: direct()})); err != nil {
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
		t.Fatalf("nothing is left to undo: %s", out)
	}
	select {
	case looks <- time.Time{}:
	case <-time.After(time.Minute):
		t.Fatal("nobody looks")
	}
	m.group.Wait() // nobody looks any more
	if all, err := m.Records(); err != nil || len(all) > 0 {
		t.Errorf("left: %v (%v)", all, err)
	}
	if out := nettest.Run(t, ns, "ip", "-o", "link"); strings.Contains(out, "tap0") {
		t.Errorf("left: %s", out)
	}
}
