// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// From any way of building the mesh to any other: what is there afterwards depends on the last one alone.
func TestAnyToAny(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{})
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	n1.stop()
	conn, err := kernel.Dial(n1.node)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cluster := snapshot(t, c, n1.name)
	mixed := *cluster
	mixed.Nodes = append([]model.Node(nil), cluster.Nodes...)
	mixed.Nodes[1].Published = &model.Published{Backend: "host-gw"}
	mixed.Nodes[2].Published = &model.Published{
		Backend: "vxlan", Data: `{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"}`,
		Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.33")},
	}
	fewer := *cluster
	fewer.Nodes = cluster.Nodes[:2]
	network := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	states := []struct {
		how     mesh.Config
		cluster *model.Cluster
		check   string
	}{
		{mesh.Config{}, cluster, ""},
		{mesh.Config{Backend: "vxlan"}, cluster, ""},
		{
			mesh.Config{Backend: "vxlan", VXLAN: mesh.VXLAN{VNI: 7, Port: 4789, GBP: true, Learning: true, MTU: 1400}},
			cluster,
			"",
		},
		{mesh.Config{Backend: "vxlan", VXLAN: mesh.VXLAN{DirectRouting: true}, Masquerade: network}, &fewer, ""},
		{
			mesh.Config{Masquerade: network, NoMasquerade: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, Blackhole: true},
			&mixed, "",
		},
		{mesh.Config{Backend: "vxlan", Networks: network, BadChecksums: []string{"flannel.1"}}, &mixed, ""},
	}
	bring := func(i int) string {
		t.Helper()
		r := reconcile.New(reconcile.Config{
			Host: conn, NS: n1.node, Mesh: states[i].how, Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
		})
		if _, err := r.Once(t.Context(), states[i].cluster); err != nil {
			t.Fatalf("state %d: %v", i, err)
		}
		before := conn.Writes()
		if _, err := r.Once(t.Context(), states[i].cluster); err != nil || conn.Writes() != before {
			t.Errorf("state %d: a second pass wrote %d times, %v", i, conn.Writes()-before, err)
		}
		return all(t, conn)
	}
	for i := range states {
		states[i].check = bring(i)
	}
	for i := range states {
		for j := range states {
			if i == j {
				continue
			}
			bring(i)
			if got := bring(j); got != states[j].check {
				t.Fatalf("from %d to %d\n%s\nwant\n%s", i, j, got, states[j].check)
			}
		}
	}
	n1.start(c)
}
