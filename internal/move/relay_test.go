// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// TestRelays: the node that a machine comes from may pass on what is for it while it is awaited, and for a minute after it has come; and
// nobody where the attachment goes.
func TestRelays(t *testing.T) {
	m := moverOf(t)
	now, changes := time.Unix(1000, 0), atomic.Int32{}
	over := make(chan time.Time, 1)
	m.cfg.Now, m.cfg.RelaysChanged = func() time.Time { return now }, func() { changes.Add(1) }
	m.cfg.After = func(d time.Duration) <-chan time.Time {
		if d != relayTime {
			t.Errorf("it ends in %s", d)
		}
		return over
	}
	m.cfg.Holds = func(netip.Addr) bool { return false }
	at := netip.MustParsePrefix("10.8.0.0/29")
	m.cfg.Cluster = func() *model.Cluster { return &model.Cluster{Blocks: []model.AddressBlock{{CIDR: at, Node: "n1"}}} }
	rec := routed("db", "10.8.0.1")
	f := newFollower(m, rec)
	m.followers[rec.Key()] = f
	want := func(what, relays string, n int32) {
		t.Helper()
		if got := fmt.Sprint(m.Relays()); got != relays || changes.Load() != n {
			t.Errorf("%s: %s, want %s; told %d times, want %d", what, got, relays, changes.Load(), n)
		}
	}
	want("nothing is known", "[]", 0)
	f.comesFrom()
	f.comesFrom()
	want("awaited", "[{n1 10.8.0.1}]", 1)
	f.hasCome()
	now = now.Add(relayTime - time.Second)
	want("it has come", "[{n1 10.8.0.1}]", 1)
	now = now.Add(time.Second)
	want("a minute later", "[]", 1)
	f.setRelay(nil)
	want("the mesh is told", "[]", 2)

	now = time.Unix(2000, 0)
	f.comesFrom()
	f.hasCome()
	want("once more", "[{n1 10.8.0.1}]", 3)
	end := f.relayEnds()
	over <- now
	<-end
	delete(m.followers, rec.Key())
	want("the attachment is gone", "[]", 3)
}
