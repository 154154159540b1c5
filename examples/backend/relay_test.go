// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/reconcile"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// config is a mesh with the back end of one's own beside weft's.
func config(router string) mesh.Config {
	return mesh.Config{Backend: "relay", Backends: append(mesh.Backends(), Relay(netip.MustParseAddr(router)))}
}

func cluster(self string) *model.Cluster {
	c := &model.Cluster{Self: self}
	for i := 1; i <= 2; i++ {
		c.Nodes = append(c.Nodes, model.Node{
			Name: fmt.Sprintf("n%d", i), Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.%d.1", i))},
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i))},
		})
	}
	return c
}

// Two nodes on networks of their own reach each other's pods through the router between them, and a pass over a kernel that
// agrees writes nothing.
func TestRelay(t *testing.T) {
	router := nettest.NS(t, "router")
	run := func(ns *netns.NS, lines ...string) {
		t.Helper()
		for _, line := range lines {
			nettest.Run(t, ns, strings.Fields(line)...)
		}
	}
	var nodes [3]*netns.NS
	for i := 1; i <= 2; i++ {
		n := nettest.NS(t, fmt.Sprintf("n%d", i))
		nodes[i] = n
		run(n, fmt.Sprintf("ip link add eth0 type veth peer name to%d netns %s", i, router.Path()), "ip link set eth0 up", "ip link set lo up",
			fmt.Sprintf("ip addr add 192.168.%d.1/24 dev eth0", i), fmt.Sprintf("ip addr add 10.244.%d.5/32 dev lo", i)) // it stands for a pod
		run(router, fmt.Sprintf("ip link set to%d up", i), fmt.Sprintf("ip addr add 192.168.%d.254/24 dev to%d", i, i),
			fmt.Sprintf("ip route add 10.244.%d.0/24 via 192.168.%d.1", i, i))
	}
	run(router, "sysctl -qw net.ipv4.ip_forward=1")
	for i := 1; i <= 2; i++ {
		conn, err := kernel.Dial(nodes[i])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		r := reconcile.New(reconcile.Config{
			Host: conn, NS: nodes[i], Mesh: config(fmt.Sprintf("192.168.%d.254", i)),
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, After: time.After,
		})
		for range 2 {
			before := conn.Writes()
			status, err := r.Once(t.Context(), cluster(fmt.Sprintf("n%d", i)))
			if err != nil || len(status.Topology.Problems) > 0 {
				t.Fatalf("%v\n%s", err, status.Topology.Text())
			}
			if wrote := conn.Writes() - before; before > 0 && wrote > 0 {
				t.Errorf("a second pass wrote %d times", wrote)
			}
		}
	}
	nettest.Run(t, nodes[1], "ping", "-c1", "-W5", "-I", "10.244.1.5", "10.244.2.5")
}

// Example prints what the plan is, without a kernel.
func Example() {
	c := cluster("n1")
	topology, err := mesh.Plan(c, config("192.168.9.254"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(topology.Text())
	// Output:
	// node n1, back end relay
	//   pods      10.244.1.0/24
	// peer n2
	//   not reached
	// problem: node n1: no link holds its own address 192.168.1.1
	//   hint: put the address on a link, or correct status.addresses of the Node
	// problem: node n1 has no IPv4 underlay, so no peer's IPv4 pods are reached
	//   hint: give node n1 an InternalIP of that family that one of its links holds
}

// TestDocs: the page shows this very code.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/backends.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("relay.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(code), "// Relay brings")
	if !strings.Contains(string(page), "// Relay brings"+shown) {
		t.Error("docs/backends.md does not show the code of relay.go")
	}
}
