// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// publishes returns the node with published backend, data and addresses.
func publishes(n model.Node, backend, data string, addrs ...string) model.Node {
	n.Published = &model.Published{Backend: backend, Data: data}
	for _, a := range addrs {
		n.Published.Addrs = append(n.Published.Addrs, netip.MustParseAddr(a))
	}
	return n
}

// Contradictory facts are reported with these messages, and only the affected part is omitted.
func TestBadFacts(t *testing.T) {
	a, b := node("a", "192.168.0.1", "10.244.1.0/24"), node("b", "192.168.0.2", "10.244.2.0/24")
	c := node("c", "192.168.0.3", "10.244.3.0/24")
	vxlan := mesh.Config{Backend: "vxlan"}
	network := mesh.Config{Networks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	const mac = `{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"}`
	for _, test := range []struct {
		name  string
		how   mesh.Config
		nodes []model.Node
		want  string
		lost  string // the peers that are not reached
	}{
		{
			"duplicate subnet",
			mesh.Config{},
			[]model.Node{a, b, node("d", "192.168.0.4", "10.244.2.0/24")},
			"podCIDR 10.244.2.0/24 of node b overlaps podCIDR 10.244.2.0/24 of node d (give each Node a prefix of its own; until then the pods of neither are reached)", "b d",
		},
		{
			"own subnet",
			mesh.Config{},
			[]model.Node{a, node("d", "192.168.0.4", "10.244.1.0/24")},
			"podCIDR 10.244.1.0/24 of node a overlaps podCIDR 10.244.1.0/24 of node d (give each Node a prefix of its own; until then the pods of neither are reached)", "d",
		},
		{
			"duplicate public address", vxlan,
			[]model.Node{a, publishes(b, "vxlan", "", "203.0.113.9"), publishes(c, "vxlan", "", "203.0.113.9")},
			"nodes b and c both have the address 203.0.113.9 (correct status.addresses of one of the Nodes; until then the pods of neither are reached)", "b c",
		},
		{
			"outside of the network", network,
			[]model.Node{a, b, node("c", "192.168.0.3", "10.99.3.0/24")},
			"node c: podCIDR 10.99.3.0/24 is outside of the network 10.244.0.0/16 (give the node a podCIDR of the network, or correct the network in the configuration)", "c",
		},
		{
			"wider than the network", network,
			[]model.Node{a, node("c", "192.168.0.3", "10.0.0.0/8")},
			"node c: podCIDR 10.0.0.0/8 is outside of the network 10.244.0.0/16 (give the node a podCIDR of the network, or correct the network in the configuration)", "c",
		},
		{
			"a family that is off", network, []model.Node{
				node("a", "192.168.0.1", "fd00::1", "10.244.1.0/24", "fd00:244:1::/64"),
				node("b", "192.168.0.2", "fd00::2", "10.244.2.0/24", "fd99:9::/64"),
			}, "", "",
		},
		{
			"unknown backend",
			mesh.Config{},
			[]model.Node{a, publishes(b, "pigeon", ""), c},
			`node b: mesh: backend "pigeon" is not known (known: host-gw, vxlan, udp, ipip, wireguard, alloc, bgp, extension)`, "b",
		},
		{
			"ipsec",
			mesh.Config{},
			[]model.Node{a, publishes(b, "ipsec", ""), c},
			`node b: mesh: backend "ipsec" is not supported (use wireguard)`, "b",
		},
		{
			"no podCIDR",
			mesh.Config{},
			[]model.Node{a, node("b", "192.168.0.2")},
			"node b has no podCIDR (set spec.podCIDRs of the Node)", "b",
		},
		{
			"no JSON", vxlan,
			[]model.Node{a, publishes(b, "vxlan", `[]`), c},
			`node b publishes for vxlan []: not such an object (have that node publish it again: {"VNI":1,"VtepMAC":"12:34:56:78:9a:bc"})`, "b",
		},
		{
			"no MAC address", vxlan,
			[]model.Node{a, publishes(b, "vxlan", `{"VNI":1}`), c},
			`node b publishes for vxlan {"VNI":1}: VtepMAC "" is not a unicast MAC address (have that node publish it again: {"VNI":1,"VtepMAC":"12:34:56:78:9a:bc"})`, "b",
		},
		{
			"multicast MAC address", vxlan,
			[]model.Node{a, publishes(b, "vxlan", `{"VNI":1,"VtepMAC":"ff:ff:ff:ff:ff:ff"}`), c},
			`node b publishes for vxlan {"VNI":1,"VtepMAC":"ff:ff:ff:ff:ff:ff"}: VtepMAC "ff:ff:ff:ff:ff:ff" is not a unicast MAC address (have that node publish it again: {"VNI":1,"VtepMAC":"12:34:56:78:9a:bc"})`, "b",
		},
		{
			"another VNI", vxlan,
			[]model.Node{a, publishes(b, "vxlan", `{"VNI":7,"VtepMAC":"12:c6:65:89:b4:e3"}`), c},
			`node b publishes for vxlan {"VNI":7,"VtepMAC":"12:c6:65:89:b4:e3"}: VNI 7 is not this node's 1 (give all nodes the same VNI)`, "b",
		},
		{
			"our own MAC address", vxlan,
			[]model.Node{publishes(a, "vxlan", mac), publishes(b, "vxlan", mac), c},
			"nodes a and b both have the VtepMAC 12:c6:65:89:b4:e3: the kernel drops what one sends to the other (on one of them, delete flannel.1 and its annotation, and restart the agent)", "b",
		},
		{
			"one MAC address twice", vxlan,
			[]model.Node{a, publishes(b, "vxlan", mac), publishes(c, "vxlan", mac)},
			"nodes b and c both have the VtepMAC 12:c6:65:89:b4:e3 (on one of them, delete flannel.1 and its annotation, and restart the agent; until then the pods of neither are reached)", "b c",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			topo := planAs(t, test.how, &model.Cluster{Self: "a", Nodes: test.nodes}, "eth0 192.168.0.1/24")
			var problems, lost []string
			for _, p := range topo.Problems {
				problems = append(problems, p.String())
			}
			for _, p := range topo.Peers {
				if p.Fragment().Host.Empty() {
					lost = append(lost, p.Name)
				}
			}
			if d := cmp.Diff(test.want, strings.Join(problems, "\n")); d != "" {
				t.Error(d)
			}
			if got := strings.Join(lost, " "); got != test.lost {
				t.Errorf("not reached: %q, want %q", got, test.lost)
			}
		})
	}
}

// An invalid configuration is refused with these messages.
func TestBadConfig(t *testing.T) {
	for _, test := range []struct {
		how  mesh.Config
		code model.Code
		want string
		hint string
	}{
		{
			mesh.Config{Backend: "pigeon"},
			model.CodeInvalidConf, `mesh: backend "pigeon" is not known`,
			"known: host-gw, vxlan, udp, ipip, wireguard, alloc, bgp, extension",
		},
		{
			mesh.Config{Backend: "ipsec"},
			model.CodeUnsupportedField, `mesh: backend "ipsec" is not supported`,
			"use wireguard",
		},
		{
			mesh.Config{Backend: "aws-vpc"},
			model.CodeUnsupportedField, `mesh: backend "aws-vpc" is not supported`,
			"use wireguard",
		},
		{mesh.Config{Backend: "gce"}, model.CodeUnsupportedField, `mesh: backend "gce" is not supported`, "use wireguard"},
		{
			mesh.Config{Backend: "ali-vpc"},
			model.CodeUnsupportedField, `mesh: backend "ali-vpc" is not supported`,
			"use wireguard",
		},
		{
			mesh.Config{Backend: "tencent-vpc"},
			model.CodeUnsupportedField, `mesh: backend "tencent-vpc" is not supported`,
			"use wireguard",
		},
		{
			mesh.Config{Backend: "vxlan", VXLAN: mesh.VXLAN{VNI: 1 << 24}},
			model.CodeInvalidConf,
			"vxlan: VNI 16777216 is not between 1 and 16777215", "flannel's is 1",
		},
		{
			mesh.Config{Backend: "vxlan", VXLAN: mesh.VXLAN{MTU: 117}},
			model.CodeInvalidConf,
			"vxlan: MTU 117 is not between 118 and 65535", "remove it to use the MTU of the interface to the other nodes",
		},
	} {
		_, err := mesh.Plan(&model.Cluster{Self: "a", Nodes: []model.Node{node("a", "192.168.0.1", "10.244.1.0/24")}},
			test.how, nil)
		var fault *model.Error
		if !errors.As(err, &fault) || fault.Code != test.code || fault.Msg != test.want || fault.Hint != test.hint {
			t.Errorf("%+v: %v, want code %d, %q (%s)", test.how, err, test.code, test.want, test.hint)
		}
	}
}

func BenchmarkPlanPublished(b *testing.B) {
	c := &model.Cluster{Self: "n0"}
	for i := range 10000 {
		n := node(fmt.Sprintf("n%d", i), fmt.Sprintf("192.168.%d.%d", i/250, 1+i%250),
			fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
		c.Nodes = append(
			c.Nodes,
			publishes(n, "vxlan", fmt.Sprintf(`{"VNI":1,"VtepMAC":"12:34:00:00:%02x:%02x"}`, i/256, i%256), n.Addrs[0].String()),
		)
	}
	slices.SortFunc(c.Nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) })
	for b.Loop() {
		if topo := planAs(b, mesh.Config{Backend: "vxlan"}, c, "eth0 192.168.0.1/16"); len(topo.Problems) > 0 {
			b.Fatal(topo.Problems[0])
		}
	}
}
