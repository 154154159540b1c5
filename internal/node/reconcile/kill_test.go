// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// cutting is a context that ends when it was asked for the n-th time whether it has: what reads and writes the kernel
// asks before each batch, so all stops between two of them, as after a kill.
type cutting struct {
	context.Context
	left atomic.Int64
}

func (c *cutting) Err() error {
	if c.left.Add(-1) < 0 {
		return errors.New("cut here")
	}
	return nil
}

// snapshot returns the cluster's current state in the datastore.
func snapshot(t *testing.T, c *cluster, self string) *model.Cluster {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := facts.New(c.store, self, slog.New(slog.DiscardHandler), time.After)
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-f.Synced():
	case <-time.After(soon):
		t.Fatal("the store says nothing")
	}
	return f.Cluster()
}

// A pass that stops at any step is finished by the next one, whatever it was about to do: to make all, to change it, to
// take it away.
func TestCutAtEveryStep(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	n1.stop()
	conn, err := kernel.Dial(n1.node)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	begin := func(how mesh.Config) *reconcile.Reconciler {
		return reconcile.New(reconcile.Config{
			Host: conn, NS: n1.node, Mesh: how, Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
		})
	}
	full := snapshot(t, c, n1.name)
	fewer := *full
	fewer.Nodes = full.Nodes[:2]
	ranges := mesh.Config{Backend: "vxlan", VXLAN: mesh.VXLAN{Port: 4789}}
	for _, walk := range []struct {
		name     string
		from, to mesh.Config
		after    *model.Cluster
	}{
		{"from nothing", mesh.Config{}, n1.mesh, full},
		{"a node left and the device is made anew", n1.mesh, ranges, &fewer},
		{"to another backend", n1.mesh, mesh.Config{}, full},
	} {
		bring := func(how mesh.Config, to *model.Cluster) {
			t.Helper()
			if _, err := begin(how).Once(t.Context(), to); err != nil {
				t.Fatalf("%s: a fresh pass: %v", walk.name, err)
			}
		}
		bring(walk.from, full)
		bring(walk.to, walk.after)
		want := all(t, conn)
		steps := 0
		for done := false; !done; steps++ {
			bring(walk.from, full)
			ctx := &cutting{Context: t.Context()}
			ctx.left.Store(int64(steps))
			_, _ = begin(walk.to).Once(ctx, walk.after)
			done = ctx.left.Load() >= 0
			bring(walk.to, walk.after)
			if got := all(t, conn); got != want {
				t.Fatalf("%s, cut at step %d, then a fresh pass\n%s\nwant\n%s", walk.name, steps, got, want)
			}
		}
		t.Logf("%s: %d steps", walk.name, steps)
		if steps < 6 {
			t.Errorf("%s: only %d steps", walk.name, steps)
		}
	}
	n1.start(c)
}

// all is what a node holds of the mesh, with everything else.
func all(t *testing.T, conn *kernel.Conn) string {
	t.Helper()
	have, err := conn.ReadAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	have.Sysctls, have.Rules = nil, nil
	for _, table := range have.Tables { // the kernel lists them as they came
		slices.SortFunc(table.Chains, func(a, b state.Chain) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(table.Sets, func(a, b state.Set) int { return strings.Compare(a.Name, b.Name) })
	}
	b, err := json.MarshalIndent(have, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const beReconciler = "WEFT_TEST_BE_RECONCILER"

// TestBeKilled is no test: it is the reconciler that TestKilled kills.
func TestBeKilled(t *testing.T) {
	words := strings.Fields(os.Getenv(beReconciler))
	if len(words) != 3 {
		return
	}
	ns, err := netns.Open(words[0])
	if err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(words[1])
	if err != nil {
		t.Fatal(err)
	}
	conn, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	f := facts.New(s, "n1", log, time.After)
	go func() { _ = f.Run(t.Context()) }()
	<-f.Synced()
	r := reconcile.New(reconcile.Config{
		Host: conn, NS: ns, Mesh: mesh.Config{Backend: words[2]}, Log: log, Now: time.Now, After: time.After, Facts: f,
	})
	_, _ = os.Stdout.WriteString("ready\n")
	_ = r.Run(t.Context())
}

// A reconciler that is killed while it works leaves nothing that the next one does not put right.
func TestKilled(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	want := n1.tunnels(t)
	const rounds = 8
	for i := range rounds {
		n1.stop()
		if i%2 == 0 {
			ip(t, n1.node, "link del flannel.1", "link del flannel-v6.1", "link set eth0 mtu 1500")
		}
		n1.killed(t, c, []string{"vxlan", "host-gw"}[i/2%2], time.Duration(rand.Int64N(int64(30*time.Millisecond))))
		n1.start(c)
		within(t, soon, "all is there again", func() bool { return n1.tunnels(t) == want })
	}
}

// killed runs a reconciler in a process of its own and kills it a while after it began.
func (m *testNode) killed(t *testing.T, c *cluster, backend string, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBeKilled$")
	cmd.Env = append(os.Environ(), beReconciler+"="+strings.Join([]string{m.node.Path(), c.dir, backend}, " "))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil { // it begins now
		t.Errorf("the reconciler did not begin: %v", err)
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// silent is a store that is away: it never says anything.
type silent struct{}

func (silent) Watch(ctx context.Context) (<-chan store.Event, error) {
	events := make(chan store.Event)
	context.AfterFunc(ctx, func() { close(events) })
	return events, nil
}

// TestStoreIsAway: while the datastore is unreachable nothing is deleted, not even after a start, and the kernel is
// still repaired according to the last plan.
func TestStoreIsAway(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	want := n1.tunnels(t)
	n1.stop()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	conn, err := kernel.Dial(n1.node)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	f := facts.New(silent{}, n1.name, log, time.After)
	r := reconcile.New(reconcile.Config{
		Facts: f, Host: conn, NS: n1.node, Log: log, Now: time.Now, After: time.After, Mesh: n1.mesh,
		Full: 20 * time.Millisecond,
	})
	done := make(chan error, 2)
	go func() { done <- f.Run(ctx) }()
	go func() { done <- r.Run(ctx) }()
	ip(t, n1.node, "link set eth0 down", "link set eth0 up", "addr replace fd00::1/64 dev eth0 nodad")
	for range 10 {
		nettest.Run(t, n1.pod, "ping", "-n", "-c1", "-W20", c.nodes[1].addrs[0])
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := n1.tunnels(t); got != want {
		t.Errorf("without a store\n%s\nwas\n%s", got, want)
	}
	if n := conn.Writes(); n != 0 {
		t.Errorf("%d writes without a plan", n)
	}
}
