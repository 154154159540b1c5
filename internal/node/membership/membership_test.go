// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestRank: the nodes of a cluster have different ranks, whichever node computes them; a node finds its own object.
func TestRank(t *testing.T) {
	c := &model.Cluster{Nodes: []model.Node{
		{Name: "a", Labels: map[string]string{"n": "a"}},
		{Name: "b", Labels: map[string]string{"n": "b"}},
		{Name: "c", Labels: map[string]string{"n": "c"}},
	}}
	var ranks []int
	for _, o := range c.Nodes {
		n := Node{Name: o.Name, Cluster: func() *model.Cluster { return c }}
		ranks = append(ranks, n.Rank())
		if labels, known := n.Labels(); !known || labels["n"] != o.Name {
			t.Errorf("node %s has the labels %v, %t", o.Name, labels, known)
		}
	}
	slices.Sort(ranks)
	if !slices.Equal(ranks, []int{0, 1, 2}) {
		t.Errorf("ranks %v", ranks)
	}
	if _, known := (Node{Name: "d", Cluster: func() *model.Cluster { return c }}).Self(); known {
		t.Error("a node that has no object knows it")
	}
}

// TestUnknown: before the cluster is known, all results are empty.
func TestUnknown(t *testing.T) {
	for name, n := range map[string]Node{
		"no datastore": {Name: "a"}, "no snapshot": {Name: "a", Cluster: func() *model.Cluster { return nil }},
	} {
		if _, known := n.Self(); known || n.All() != nil || n.Rank() != 0 || n.PodCIDRs() != nil {
			t.Errorf("%s: the node knows of the cluster", name)
		}
	}
}
