// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/plan/explain"
)

// A summary has the number of peers by link: a peer counts once for each link, and one without a path not at all.
func TestSummary(t *testing.T) {
	tunnel := explain.Path{Link: "vxlan.weft", Tunnel: true}
	n := explain.Node{Name: "node1", Peers: []explain.Peer{
		{Name: "node2", Paths: []explain.Path{tunnel, tunnel, {Link: "eth0"}}},
		{Name: "node3", Paths: []explain.Path{tunnel}},
		{Name: "node4"},
		{Name: "node5", Paths: []explain.Path{{}}},
	}}
	s := n.Summary()
	want := []explain.PeerLink{{Link: "eth0", Peers: 1}, {Link: "vxlan.weft", Tunnel: true, Peers: 2}}
	if !slices.Equal(s.Links, want) || s.Peers != nil || s.Name != "node1" || len(n.Peers) != 4 {
		t.Errorf("%+v of %+v", s, n)
	}
	if !slices.Equal(s.PeerLinks(), want) || !slices.Equal(n.PeerLinks(), want) {
		t.Errorf("links %+v, and of the summary %+v", n.PeerLinks(), s.PeerLinks())
	}
}
