// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/vm/launch"
)

// TestCheckMigration: a migration that cannot succeed is refused before anything is created.
func TestCheckMigration(t *testing.T) {
	source := launch.Status{Namespace: "far", Name: "vm1", Node: "node1"}
	for _, c := range []struct{ addresses, to, want string }{
		{"pools", "node2", ""},
		{"podCIDRs", "node2", "VM far/vm1 cannot keep its addresses on another node"},
		{"pools", "node1", "VM far/vm1 is on node1 already"},
		{"pools", "node9", `node "node9" not found`},
	} {
		s := layout.Spec{
			Name: "lab", Nodes: 2, Wires: 1, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
			Addresses: c.addresses,
		}
		l, err := s.Layout()
		if err != nil {
			t.Fatal(err)
		}
		j := &migrator{Migrate: Migrate{Node: c.to}, source: source}
		if err := j.check(l); (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestChoosePeer: the peer is not on the source or target node, if possible, and rather a pod than a node.
func TestChoosePeer(t *testing.T) {
	pod := func(name, node string) PodStatus {
		return PodStatus{
			Namespace: "a", Name: name, Node: node, State: "Running", ID: "1", Netns: "/x",
			IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		}
	}
	ended, host, vmPod := pod("ended", "node3"), pod("host", "node3"), pod("vm-pod", "node3")
	ended.State, host.HostNetwork, vmPod.Annotations = "Succeeded", true, map[string]string{launch.DomainAnnotation: "vm2"}
	nodes := []NodeStatus{{Name: "node1"}, {Name: "node2"}, {Name: "node3"}}
	m := launch.Status{Namespace: "far", Name: "vm1", Node: "node1"}
	for _, c := range []struct {
		st         Status
		name, want string
	}{
		{Status{Nodes: nodes, Pods: []PodStatus{pod("x", "node1"), ended, host, vmPod, pod("y", "node3")}}, "", "a/y"},
		{Status{Nodes: nodes, Pods: []PodStatus{pod("x", "node1"), ended, host, vmPod}}, "", "node3"},
		{Status{Nodes: nodes[:2], Pods: []PodStatus{pod("x", "node1")}}, "", "node1"},
		{Status{Nodes: nodes, Pods: []PodStatus{pod("x", "node1")}}, "x", "a/x"},
	} {
		got, err := c.st.choosePeer(c.name, m, "node2")
		if err != nil || got.Name != c.want {
			t.Errorf("%q %v, want %s", got.Name, err, c.want)
		}
	}
	if _, err := (Status{Nodes: nodes}).choosePeer("z", m, "node2"); err == nil ||
		!strings.HasPrefix(err.Error(), `node or pod "z" not found`) {
		t.Errorf("%v", err)
	}
}
