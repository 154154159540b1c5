// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// changing is a cluster that changes at random. Several nodes may have one address or one prefix at a time.
type changing struct {
	random *rand.Rand
	nodes  []model.Node
	made   int
}

func (c *changing) addr() netip.Addr {
	return netip.AddrFrom4([4]byte{172, 16, 0, byte(2 + c.random.IntN(20))})
}

func (c *changing) cidr() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(1 + c.random.IntN(20)), 0}), 24)
}

func (c *changing) published() *model.Published {
	switch c.random.IntN(5) {
	case 0:
		return &model.Published{Backend: "host-gw"}
	case 1:
		return &model.Published{Backend: "nonsense"}
	case 2, 3:
		return &model.Published{
			Backend: "vxlan", Data: fmt.Sprintf(`{"VNI":1,"VtepMAC":"12:c6:65:89:b4:%02x"}`, c.random.IntN(12)),
		}
	}
	return nil
}

// step makes one change, and returns what it was.
func (c *changing) step() string {
	c.nodes = slices.Clone(c.nodes)
	others := len(c.nodes) - 1
	if kind := c.random.IntN(10); kind < 3 || others < 3 {
		c.made++
		c.nodes = append(c.nodes, model.Node{
			Name: fmt.Sprintf("n%02d-%d", c.random.IntN(50), c.made), Addrs: []netip.Addr{c.addr()},
			PodCIDRs: []netip.Prefix{c.cidr()}, Published: c.published(),
		})
		return "join"
	} else if i := 1 + c.random.IntN(others); kind < 5 && others > 6 {
		c.nodes = slices.Delete(c.nodes, i, i+1)
		return "leave"
	} else if j := 1 + c.random.IntN(others); kind < 6 {
		c.nodes[i].PodCIDRs, c.nodes[j].PodCIDRs = c.nodes[j].PodCIDRs, c.nodes[i].PodCIDRs
		return "exchange of podCIDRs"
	} else if kind < 7 {
		c.nodes[i].Addrs, c.nodes[j].Addrs = c.nodes[j].Addrs, c.nodes[i].Addrs
		return "exchange of addresses"
	} else if kind < 8 {
		c.nodes[i].Addrs = []netip.Addr{c.addr()}
		return "new address"
	} else if kind < 9 {
		c.nodes[i].PodCIDRs = []netip.Prefix{c.cidr()}
		return "new podCIDR"
	} else {
		c.nodes[i].Published = c.published()
		return "new back end"
	}
}

// TestChangesEqualWhole: after any sequence of changes of the cluster, of which each only writes what differs, the kernel
// has what one full pass over the last state brings into another namespace, and the status is the same.
func TestChangesEqualWhole(t *testing.T) {
	nettest.Need(t, "vxlan")
	for _, cfg := range []mesh.Config{
		{}, {Backend: "vxlan"},
		{Backend: "vxlan", VXLAN: mesh.VXLAN{DirectRouting: true}, Masquerade: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
	} {
		t.Run(cfg.Backend+fmt.Sprint(len(cfg.Masquerade)), func(t *testing.T) {
			node := func(name string) (*kernel.Conn, func() *reconcile.Reconciler) {
				ns := nettest.NS(t, name)
				ip(t, ns, "link set lo up", "link add eth0 address 02:00:00:00:00:01 type veth peer name far",
					"link set far address 02:00:00:00:00:02", "link set eth0 up", "link set far up",
					"addr add 172.16.0.1/24 dev eth0")
				conn, err := kernel.Dial(ns)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				return conn, func() *reconcile.Reconciler {
					return reconcile.New(reconcile.Config{
						Host: conn, NS: ns, Mesh: cfg, Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
					})
				}
			}
			stepped, reconciler := node("stepped")
			steps := reconciler()
			whole, fresh := node("whole")
			c := &changing{random: rand.New(rand.NewPCG(1, uint64(len(cfg.Backend)))), nodes: []model.Node{{
				Name: "n00", Addrs: []netip.Addr{netip.MustParseAddr("172.16.0.1")},
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")},
			}}}
			for i := range 120 {
				what := c.step()
				cluster := &model.Cluster{Self: "n00", Nodes: slices.Clone(c.nodes)}
				slices.SortFunc(cluster.Nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) })
				is, err := steps.Once(t.Context(), cluster)
				if err != nil {
					t.Fatalf("step %d, %s: %v", i, what, err)
				}
				should, err := fresh().Once(t.Context(), cluster)
				if err != nil {
					t.Fatalf("step %d, %s: whole: %v", i, what, err)
				}
				if !slices.Equal(is.Fragments, should.Fragments) {
					t.Fatalf("step %d, %s: fragments %v, want %v", i, what, is.Fragments, should.Fragments)
				}
				if got, want := everything(t, stepped), everything(t, whole); got != want {
					t.Fatalf("step %d, %s:\n%s\nwant\n%s", i, what, got, want)
				}
			}
		})
	}
}

// everything is all with sorted elements and objects: the kernel lists them as they came.
func everything(t *testing.T, conn *kernel.Conn) string {
	t.Helper()
	have, err := conn.ReadAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lines := mesh.Lines(state.Space{Routes: have.Routes, Neighs: have.Neighs, FDBs: have.FDBs, Links: have.Links, Addrs: have.Addrs})
	for _, table := range have.Tables {
		for _, c := range table.Chains {
			lines = append(lines, fmt.Sprintf("%s %s chain %+v", table.Family, table.Name, c))
		}
		for _, s := range table.Sets {
			for _, e := range s.Elements {
				lines = append(lines, fmt.Sprintf("%s %s set %s element %v", table.Family, table.Name, s.Name, e))
			}
			s.Elements = nil
			lines = append(lines, fmt.Sprintf("%s %s set %+v", table.Family, table.Name, s))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
