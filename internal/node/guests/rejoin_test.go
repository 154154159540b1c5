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

// TestRejoin: the join of an attachment that somebody has taken away is brought back, also where its guest is told
// nothing; that of one that has been detached is not.
func TestRejoin(t *testing.T) {
	nettest.Whole(t)
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
	join := state.Join{Tap: "tap0", Link: "eth0", How: state.JoinMirred}
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
	looks := make(chan time.Time)
	w := New(Config{
		Records: l, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		After: func(time.Duration) <-chan time.Time { return looks },
		Hold:  func(context.Context, string) (func(), error) { return func() {}, nil },
	})
	defer func() { cancel(); w.Wait() }()
	w.Start(ctx)
	look := func() {
		t.Helper()
		for range 2 { // the second one begins when the first has ended
			select {
			case looks <- time.Time{}:
			case <-time.After(time.Minute):
				t.Fatal("nobody looks")
			}
		}
	}
	look()
	if cut, err := phase1.Rejoin(t.Context(), ns, []state.Join{join}); err != nil || len(cut) > 0 {
		t.Errorf("it was not joined: %v: %v", cut, err)
	}
	rec.Stage = attach.Releasing
	if err := l.Put(rec); err != nil {
		t.Fatal(err)
	}
	look() // whoever looked before the record was changed has ended
	nettest.Run(t, ns, "tc", "qdisc", "del", "dev", "tap0", "ingress")
	look()
	if cut, err := phase1.Rejoin(t.Context(), ns, []state.Join{join}); err != nil || len(cut) != 1 {
		t.Errorf("what is detached was joined: %v: %v", cut, err)
	}
}
