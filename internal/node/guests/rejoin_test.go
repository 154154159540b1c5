// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// TestRejoin: a removed join of an attachment is repaired, also if its guest gets no DHCP; that of a detached one is
// not.
func TestRejoin(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "tap")
	ns := nettest.NS(t, "pod")
	for _, line := range [][]string{
		{"link", "add", "eth0", "type", "veth", "peer", "name", "far"}, {"tuntap", "add", "tap0", "mode", "tap"},
	} {
		nettest.Run(t, ns, append([]string{"ip"}, line...)...)
	}
	id, err := ns.ID()
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	join := state.Join{Tap: "tap0", Link: "eth0", Method: state.JoinMirred}
	rec := attach.Record{
		Serial: 1, Stage: attach.Done, NetnsID: id, Request: model.Request{
			ContainerID: "c1", IfName: "net1", Netns: ns.Path(),
		},
		Acts: []attach.Act{{Fragment: &state.Fragment{Owner: "c1", Pod: state.Space{Joins: []state.Join{join}}}}},
	}
	rec.Network.Name = "direct"
	if err := l.Put(rec); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	checks := make(chan time.Time)
	w := New(Config{
		Records: l, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		After: func(time.Duration) <-chan time.Time { return checks },
		Lock:  func(context.Context, string) (func(), error) { return func() {}, nil },
	})
	defer func() { cancel(); w.Wait() }()
	w.Start(ctx)
	tick := func() {
		t.Helper()
		for range 2 { // the second one begins when the first has ended
			select {
			case checks <- time.Time{}:
			case <-time.After(time.Minute):
				t.Fatal("nobody looks")
			}
		}
	}
	tick()
	if cut, err := phase1.Rejoin(t.Context(), ns, []state.Join{join}); err != nil || len(cut) > 0 {
		t.Errorf("it was not joined: %v: %v", cut, err)
	}
	rec.Stage = attach.Releasing
	if err := l.Put(rec); err != nil {
		t.Fatal(err)
	}
	tick() // wait for the end of a check that began before the record was changed
	nettest.Run(t, ns, "tc", "qdisc", "del", "dev", "tap0", "ingress")
	tick()
	if cut, err := phase1.Rejoin(t.Context(), ns, []state.Join{join}); err != nil || len(cut) != 1 {
		t.Errorf("what is detached was joined: %v: %v", cut, err)
	}
}
