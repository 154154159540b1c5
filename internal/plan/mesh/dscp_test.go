// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// Pods with a DSCP value are in one table, with all addresses of the cluster: those of nodes, pools and prefixes.
func TestMarked(t *testing.T) {
	c := &model.Cluster{
		Self: "a", Nodes: fourNodes(), Pools: []model.AddressPool{
			pool("one", "10.1.0.0/16", "none"), pool("six", "fd01::/64", "none"),
		},
	}
	c.Nodes[3].PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.9.3.0/24")}
	cfg := mesh.Config{Pools: true, Masquerade: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}}
	table := func() (state.Table, bool) {
		topo := planAs(t, cfg, c, poolLinks()...)
		i := slices.IndexFunc(topo.Node.Host.Tables, func(t state.Table) bool { return t.Name == mesh.DSCPTable })
		if i < 0 {
			return state.Table{}, false
		}
		return topo.Node.Host.Tables[i], true
	}
	if got, any := table(); any {
		t.Errorf("nobody asked: %v", got)
	}
	cfg.DSCPMarks = []mesh.DSCPMark{{Link: "cali2", DSCP: 46}, {Link: "cali1", DSCP: 10}, {Link: "cali3", DSCP: 46}}
	got, _ := table()
	text, err := lang.Text(got)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "marked.txt", text)
	if !slices.Contains(mesh.Tables(), mesh.DSCPTable) {
		t.Error("nobody takes the table away")
	}
}
