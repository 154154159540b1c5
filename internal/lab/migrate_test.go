// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/vm/launch"
)

// TestMayMigrate: what keeps a machine from going is said before anything is made.
func TestMayMigrate(t *testing.T) {
	here := launch.Status{Namespace: "far", Name: "vm1", Node: "node1"}
	for _, c := range []struct{ addresses, to, want string }{
		{"pools", "node2", ""},
		{"podCIDRs", "node2", "machine far/vm1 cannot migrate with its addresses: the pods of each node are of one prefix"},
		{"pools", "node1", "machine far/vm1 is on node1 already"},
		{"pools", "node9", `no node is called "node9"`},
	} {
		s := Spec{
			Name: "lab", Nodes: 2, Wires: 1, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
			Addresses: c.addresses,
		}
		l, err := s.Lay()
		if err != nil {
			t.Fatal(err)
		}
		j := &journey{Migrate: Migrate{Node: c.to}, here: here}
		if err := j.may(l); (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestWitness: who holds a connection to a machine is somebody whom its journey does not concern, if there is one; a
// pod rather than a node.
func TestWitness(t *testing.T) {
	pod := func(name, node string) PodStatus {
		return PodStatus{
			Namespace: "a", Name: name, Node: node, State: "Running", ID: "1", Netns: "/x",
			IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		}
	}
	ended, host, around := pod("ended", "node3"), pod("host", "node3"), pod("around", "node3")
	ended.State, host.HostNetwork, around.Annotations = "Succeeded", true, map[string]string{launch.DomainNote: "vm2"}
	nodes := []NodeStatus{{Name: "node1"}, {Name: "node2"}, {Name: "node3"}}
	m := launch.Status{Namespace: "far", Name: "vm1", Node: "node1"}
	for _, c := range []struct {
		st         Status
		name, want string
	}{
		{Status{Nodes: nodes, Pods: []PodStatus{pod("x", "node1"), ended, host, around, pod("y", "node3")}}, "", "a/y"},
		{Status{Nodes: nodes, Pods: []PodStatus{pod("x", "node1"), ended, host, around}}, "", "node3"},
		{Status{Nodes: nodes[:2], Pods: []PodStatus{pod("x", "node1")}}, "", "node1"},
		{Status{Nodes: nodes, Pods: []PodStatus{pod("x", "node1")}}, "x", "a/x"},
	} {
		got, err := c.st.witness(c.name, m, "node2")
		if err != nil || got.Name != c.want {
			t.Errorf("%q %v, want %s", got.Name, err, c.want)
		}
	}
	if _, err := (Status{Nodes: nodes}).witness("z", m, "node2"); err == nil ||
		!strings.HasPrefix(err.Error(), `no node or pod is called "z"`) {
		t.Errorf("%v", err)
	}
}
