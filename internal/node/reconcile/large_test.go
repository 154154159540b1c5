// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// large is one node of a cluster that exists on paper only.
type large struct {
	t          *testing.T
	conn       *kernel.Conn
	reconciler *reconcile.Reconciler
}

func newLarge(t *testing.T) *large {
	t.Helper()
	ns := nettest.NS(t, "node")
	ip(t, ns, "link set lo up", "link add eth0 type veth peer name far", "link set eth0 up", "link set far up",
		"addr add 172.16.0.1/12 dev eth0")
	conn, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &large{t, conn, reconcile.New(reconcile.Config{
		Host: conn, NS: ns, Mesh: mesh.Config{Backend: "vxlan"}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		After: time.After,
	})}
}

// pass makes one with so many peers, looks at what is there, and returns how many messages the pass took, and how many
// bytes nft sent and received.
func (l *large) pass(peers int) (messages, bytes int) {
	l.t.Helper()
	c := &model.Cluster{Self: "n00000"}
	for i := range peers + 1 {
		c.Nodes = append(c.Nodes, model.Node{
			Name: fmt.Sprintf("n%05d", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i + 1)})},
			PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)},
		})
	}
	before, size := l.conn.Messages(), l.conn.NftBytes()
	status, err := l.reconciler.Once(l.t.Context(), c)
	if err != nil {
		l.t.Fatal(err)
	}
	messages, bytes = l.conn.Messages()-before, int(l.conn.NftBytes()-size)
	if d, err := (kernel.Spaces{Host: l.conn}).Diff(l.t.Context(), status.Topology.Fragments()[peers]); err != nil ||
		len(d) > 0 {
		l.t.Fatalf("the last peer: %v %v", d, err)
	}
	have, err := l.conn.ReadMarked(l.t.Context(), kernel.Marks{Alias: mesh.Mark, Protocols: []uint8{mesh.Protocol}})
	if err != nil || len(have.Routes) != peers || len(have.Neighs) != peers || len(have.FDBs) != peers {
		l.t.Fatalf("%d peers: %d routes, %d neighbors, %d entries: %v", peers, len(have.Routes), len(have.Neighs),
			len(have.FDBs), err)
	}
	return messages, bytes
}
