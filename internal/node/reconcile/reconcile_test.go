// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainParallel(m, 2)) }

// cluster is three nodes on one switch, each with a pod, and a datastore that all of them read.
type cluster struct {
	t     *testing.T
	store *dir.Store
	dir   string // of the store
	nodes []*testNode
	hub   *netns.NS
}

type testNode struct {
	name  string
	node  *netns.NS
	pod   *netns.NS
	addrs []string // the pod's
	state string
	stop  func()
	mesh  mesh.Config

	exceptions func() ([]netip.Prefix, time.Duration)

	conn       *kernel.Conn
	reconciler *reconcile.Reconciler
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newMesh(t, mesh.Config{})
}

func newMesh(t *testing.T, how mesh.Config) *cluster {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	path := t.TempDir()
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, store: s, dir: path}
	hub := nettest.NS(t, "hub")
	c.hub = hub
	ip(t, hub, "link add br0 type bridge", "link set br0 up")
	for i := 1; i <= 3; i++ {
		c.nodes = append(c.nodes, c.testNode(hub, i))
	}
	for _, m := range c.nodes {
		m.mesh = how
		m.start(c)
	}
	t.Cleanup(func() {
		for _, m := range c.nodes {
			m.stop()
		}
	})
	return c
}

func ip(t *testing.T, ns *netns.NS, commands ...string) {
	t.Helper()
	for _, c := range commands {
		nettest.IP(t, ns, c)
	}
}

func (c *cluster) testNode(hub *netns.NS, i int) *testNode {
	m := &testNode{name: fmt.Sprintf("n%d", i), state: c.t.TempDir(), stop: func() {}}
	m.node, m.pod = nettest.NS(c.t, m.name), nettest.NS(c.t, m.name+"-pod")
	m.addrs = []string{fmt.Sprintf("10.244.%d.5", i), fmt.Sprintf("fd00:244:%d::5", i)}
	join := func(a *netns.NS, an string, amac int, b *netns.NS, bn string, bmac int) {
		ip(
			c.t, a,
			fmt.Sprintf("link add %s address %s type veth peer name %s address %s netns %s", an, mac(amac), bn,
				mac(bmac), b.Path()),
		)
	}
	join(m.node, "eth0", i, hub, m.name, 40+i)
	join(m.node, "veth0", 10+i, m.pod, "eth0", 20+i)
	ip(c.t, hub, "link set "+m.name+" master br0 up")
	ip(c.t, m.node, "link set lo up", "link set eth0 up", "link set veth0 up",
		fmt.Sprintf("addr add 192.168.0.%d/24 dev eth0", i), fmt.Sprintf("addr add fd00::%d/64 dev eth0 nodad", i),
		"addr add 169.254.1.1/32 dev veth0", "addr add fe80::1/64 dev veth0 nodad",
		"route add "+m.addrs[0]+" dev veth0", "route add "+m.addrs[1]+" dev veth0")
	ip(c.t, m.pod, "link set lo up", "link set eth0 up", "addr add "+m.addrs[0]+"/32 dev eth0",
		"addr add "+m.addrs[1]+"/128 dev eth0 nodad",
		"route add default via 169.254.1.1 dev eth0 onlink", "route add default via fe80::1 dev eth0")
	// The neighbor table is shared by all namespaces of the host; if it is full, only permanent entries are kept.
	for j := 1; j <= 3; j++ {
		if j != i {
			neigh(c.t, m.node, "eth0", j, fmt.Sprintf("192.168.0.%d", j), fmt.Sprintf("fd00::%d", j))
		}
	}
	neigh(c.t, m.node, "veth0", 20+i, m.addrs...)
	neigh(c.t, m.pod, "eth0", 10+i, "169.254.1.1", "fe80::1")
	c.add(i)
	return m
}

func mac(i int) string { return fmt.Sprintf("02:00:00:00:00:%02d", i) }

func neigh(t *testing.T, ns *netns.NS, link string, m int, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		ip(t, ns, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", a, mac(m), link))
	}
}

// add writes the manifest of node i.
func (c *cluster) add(i int) {
	c.t.Helper()
	o, err := store.NodeObject(model.Node{
		Name: fmt.Sprintf("n%d", i),
		Addrs: []netip.Addr{
			netip.MustParseAddr(fmt.Sprintf("192.168.0.%d", i)), netip.MustParseAddr(fmt.Sprintf("fd00::%d", i)),
		},
		PodCIDRs: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:244:%d::/64", i)),
		},
	})
	if err == nil {
		_, err = c.store.Create(c.t.Context(), o)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// start does what an agent does for the mesh.
func (m *testNode) start(c *cluster) {
	c.t.Helper()
	log := slog.New(slog.NewTextHandler(c.t.Output(), nil)).With("node", m.name)
	conn, err := kernel.Dial(m.node)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := facts.New(c.store, m.name, log, time.After)
	r := reconcile.New(reconcile.Config{
		Facts: f, Host: conn, NS: m.node, Log: log, Now: time.Now, After: time.After,
		StatusFile: filepath.Join(m.state, reconcile.StatusFile), Mesh: m.mesh, Exceptions: m.exceptions,
	})
	m.conn, m.reconciler = conn, r
	done := make(chan error, 2)
	go func() { done <- f.Run(ctx) }()
	go func() { done <- r.Run(ctx) }()
	m.stop = func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				c.t.Error(err)
			}
		}
		_ = conn.Close()
		m.stop = func() {}
	}
}

// within waits until ok, at most d.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > d {
			t.Fatalf("not within %s: %s", d, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%s: after %s", what, time.Since(begin).Round(time.Millisecond))
}

func (m *testNode) routes(t *testing.T) string {
	t.Helper()
	return nettest.Run(t, m.node, "ip", "route", "show", "proto", "119") +
		nettest.Run(t, m.node, "ip", "-6", "route", "show", "proto", "119")
}

func TestPodsReachEachOther(t *testing.T) {
	c := newCluster(t)
	for _, from := range c.nodes {
		for _, to := range c.nodes {
			for _, addr := range to.addrs {
				within(t, soon, "ping from the pod of "+from.name+" to "+addr, func() bool {
					_, err := nettest.Try(from.pod, "ping", "-n", "-c1", "-W1", addr)
					return err == nil
				})
			}
		}
	}
	within(t, soon, "status of n1", func() bool {
		s, err := reconcile.ReadStatus(c.nodes[0].state)
		return err == nil && s.Error == "" && len(s.Topology.Peers) == 2 && len(s.Fragments) == 3 && s.Fragments[1].OK
	})
}

func TestNodesComeAndGo(t *testing.T) {
	c := newCluster(t)
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	if err := c.store.Delete(t.Context(), store.NodeKey("n3"), ""); err != nil {
		t.Fatal(err)
	}
	within(t, soon, "routes to n3 gone", func() bool {
		r := n1.routes(t)
		return !strings.Contains(r, "192.168.0.3") && !strings.Contains(r, "fd00::3") && strings.Count(r, " via ") == 2
	})
	c.add(3)
	within(t, soon, "routes to n3 back", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })

	// The prefix of n2 goes to n3: one route is replaced, none is left.
	o, err := c.store.Get(store.NodeKey("n2"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.store.Delete(t.Context(), o.Key, ""); err != nil {
		t.Fatal(err)
	}
	_, err = c.store.Modify(t.Context(), store.NodeKey("n3"), func(fields map[string]any) error {
		fields["spec"] = map[string]any{"podCIDRs": []any{"10.244.2.0/24"}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	within(t, soon, "the prefix moved", func() bool {
		r := n1.routes(t)
		return strings.Count(r, " via ") == 1 && strings.Contains(r, "10.244.2.0/24 via 192.168.0.3")
	})
}

func TestExternalChanges(t *testing.T) {
	c := newCluster(t)
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	want := n1.routes(t)
	for _, harm := range []string{
		"route del 10.244.2.0/24", "-6 route del fd00:244:3::/64", "route flush proto 119", "-6 route flush proto 119",
	} {
		time.Sleep(400 * time.Millisecond) // a pass that follows our own writes is over
		ip(t, n1.node, harm)
		within(t, soon, "repaired after ip "+harm, func() bool { return n1.routes(t) == want })
	}
	time.Sleep(400 * time.Millisecond)
	// The gateway is altered in place.
	fields := strings.Fields(want)
	metric := fields[7]
	if fields[6] != "metric" {
		metric = strings.Fields(strings.SplitAfter(strings.Split(want, "\n")[0], "metric ")[1])[0]
	}
	ip(t, n1.node, "route replace 10.244.2.0/24 via 192.168.0.99 dev eth0 proto 119 metric "+metric)
	within(t, soon, "repaired after the gateway was changed", func() bool { return n1.routes(t) == want })
	time.Sleep(400 * time.Millisecond)
	ip(t, n1.node, "link set eth0 down", "link set eth0 up", "addr add fd00::1/64 dev eth0 nodad")
	within(t, soon, "repaired after the link was down", func() bool { return n1.routes(t) == want })
}

func TestRestartTakesAwayWhatIsStale(t *testing.T) {
	c := newCluster(t)
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	n1.stop()
	if strings.Count(n1.routes(t), " via ") != 4 {
		t.Error("routes went with the agent; packets of pods must go on")
	}
	foreign := []string{"10.9.0.0/24 via 192.168.0.3 dev eth0", "10.10.0.0/24 via 192.168.0.3 dev eth0 metric 20000000"}
	ours := "10.244.1.77 dev veth0 proto 119" // as an attachment has one
	for _, r := range append(foreign, ours) {
		ip(t, n1.node, "route add "+r)
	}
	if err := c.store.Delete(t.Context(), store.NodeKey("n3"), ""); err != nil {
		t.Fatal(err)
	}
	n1.start(c)
	within(t, soon, "stale routes gone", func() bool { return strings.Count(n1.routes(t), " via ") == 2 })
	all := nettest.Run(t, n1.node, "ip", "route", "show")
	for _, want := range []string{"10.9.0.0/24 via", "10.10.0.0/24 via", "10.244.1.77 dev veth0"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q was taken away:\n%s", want, all)
		}
	}
}

func TestErrorIsReported(t *testing.T) {
	c := newCluster(t)
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	if err := c.store.Delete(t.Context(), store.NodeKey("n1"), ""); err != nil {
		t.Fatal(err)
	}
	within(t, soon, "error in the status", func() bool {
		s, err := reconcile.ReadStatus(n1.state)
		return err == nil && strings.Contains(s.Error, `node "n1" is not in the cluster`) && len(s.Topology.Peers) == 2
	})
	if n := strings.Count(n1.routes(t), " via "); n != 4 {
		t.Errorf("%d routes while no plan can be made, want the last plan's 4", n)
	}
	c.add(1)
	within(t, soon, "error gone", func() bool {
		s, err := reconcile.ReadStatus(n1.state)
		return err == nil && s.Error == ""
	})
	b, err := os.ReadFile(filepath.Join(n1.state, reconcile.StatusFile))
	if err != nil || !json.Valid(b) {
		t.Errorf("status file: %v\n%s", err, b)
	}
}
