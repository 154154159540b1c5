// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"crypto/rand"
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
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/plan/mesh"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// cluster is nodes on one switch, each with a pod, and a datastore that all of them read.
type cluster struct {
	t     *testing.T
	store *dir.Store
	nodes []*testNode
}

type testNode struct {
	name       string
	node, pod  *netns.NS
	addrs      []string // the pod's
	state      string
	mesh       mesh.Config
	reconciler *reconcile.Reconciler
	stop       func()
	leave      func() // ends the reconciler alone
}

// newCluster starts one node for each configuration.
func newCluster(t *testing.T, how ...mesh.Config) *cluster {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, store: s}
	hub := nettest.NS(t, "hub")
	ip(t, hub, "link add br0 type bridge", "link set br0 up")
	for i := range how {
		c.nodes = append(c.nodes, c.testNode(hub, i+1, len(how)))
	}
	all := c.nodes
	t.Cleanup(func() {
		for _, m := range all {
			m.stop()
		}
	})
	for i, m := range c.nodes {
		m.mesh = how[i]
		if m.mesh.WireGuard.KeyFile == "" {
			m.mesh.WireGuard.KeyFile = filepath.Join(m.state, "run", "wgkey")
		}
		m.start(c)
	}
	c.publish()
	return c
}

func ip(t testing.TB, ns *netns.NS, commands ...string) {
	t.Helper()
	for _, c := range commands {
		nettest.IP(t, ns, c)
	}
}

func mac(i int) string { return fmt.Sprintf("02:00:00:00:00:%02d", i) }

func neigh(t testing.TB, ns *netns.NS, link string, m int, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		ip(t, ns, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", a, mac(m), link))
	}
}

func (c *cluster) testNode(hub *netns.NS, i, n int) *testNode {
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
	for j := 1; j <= n; j++ {
		if j != i {
			neigh(c.t, m.node, "eth0", j, fmt.Sprintf("192.168.0.%d", j), fmt.Sprintf("fd00::%d", j))
		}
	}
	neigh(c.t, m.node, "veth0", 20+i, m.addrs...)
	neigh(c.t, m.pod, "eth0", 10+i, "169.254.1.1", "fe80::1")
	o, err := store.NodeObject(model.Node{
		Name: m.name,
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
	return m
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
	runner := tunnel.New(tunnel.Config{
		NS: m.node, Env: os.Environ(), Random: rand.Reader, Log: log, Now: time.Now, After: time.After,
	})
	r := reconcile.New(reconcile.Config{
		Facts: f, Host: conn, NS: m.node, Log: log, Now: time.Now, After: time.After, Runner: runner,
		StatusFile: filepath.Join(m.state, reconcile.StatusFile), Mesh: m.mesh,
	})
	m.reconciler = r
	done := make(chan error, 2)
	go func() { done <- f.Run(ctx) }()
	go func() { done <- r.Run(ctx) }()
	m.leave = func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				c.t.Error(err)
			}
		}
		m.leave = func() {}
	}
	m.stop = func() {
		m.leave()
		runner.Close()
		_ = conn.Close()
		m.stop = func() {}
	}
}

// publish publishes the annotations of all nodes.
func (c *cluster) publish() {
	c.t.Helper()
	for _, m := range c.nodes {
		within(c.t, "what "+m.name+" publishes", func() bool { return m.reconciler.Status().Topology.Publish.Backend != "" })
		said := flannel.DefaultKeys().Write(m.reconciler.Status().Topology.Publish, nil)
		if _, err := c.store.Modify(c.t.Context(), store.NodeKey(m.name), store.Annotate(said)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// within waits for a condition, without a limit that a busy host could exceed.
func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	const most = 30 * time.Second
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > most {
			t.Fatalf("not after %v: %s", most, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%v until %s", time.Since(begin).Round(time.Millisecond), what)
}

func (m *testNode) reaches(addr string) bool {
	_, err := nettest.Try(m.pod, "ping", "-n", "-c1", "-W0.3", addr)
	return err == nil
}

// allReach waits until each pod reaches each, in both families or in one.
func (c *cluster) allReach(family ...int) {
	c.t.Helper()
	for _, from := range c.nodes {
		for _, to := range c.nodes {
			for i, addr := range to.addrs {
				if len(family) > 0 && i != family[0] {
					continue
				}
				within(c.t, "ping from the pod of "+from.name+" to "+addr, func() bool { return from.reaches(addr) })
			}
		}
	}
}

// repaired damages a node and waits until it reaches all others again.
func (c *cluster) repaired(m *testNode, harm string, family ...int) {
	c.t.Helper()
	nettest.Run(c.t, m.node, strings.Fields(harm)...)
	for _, to := range c.nodes {
		for i, addr := range to.addrs {
			if len(family) == 0 || i == family[0] {
				within(c.t, addr+" is reached after "+harm, func() bool { return m.reaches(addr) })
			}
		}
	}
}
