// SPDX-License-Identifier: Apache-2.0

package path

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// nodePod is a pod of weft's routed design.
type nodePod struct {
	Name, Node, Link string
	MAC              state.MAC
	Addr             netip.Addr
}

// peersOfPolicy is how many pods of other nodes each policy allows.
const peersOfPolicy = 10

// podNamespace is the namespace of all pods of a design with policies.
const podNamespace = "bench"

// program writes the tables of an agent's routed pods on a node: their source guard, and the policies. Each of these selects
// all pods in both directions and allows pods of other nodes; the last one also allows the design's own pods.
func program(ctx context.Context, conn *kernel.Conn, node string, pods []nodePod, policies int) error {
	var all []state.Table
	for _, p := range pods {
		if p.Node == node {
			key := model.AttachmentKey{Network: "pods", ContainerID: p.Name, IfName: "eth0"}
			all = append(all, plugin.SourceTables(key, p.Link, p.MAC, p.Addr)...)
		}
	}
	if policies > 0 {
		for _, t := range policyIndex(node, pods, policies).Tables() {
			all = append(all, t.Table)
		}
	}
	tables, err := conn.Netfilter()
	if err != nil {
		return err
	}
	return tables.Apply(ctx, all)
}

// policyIndex returns the compiled policies of a node.
func policyIndex(node string, pods []nodePod, policies int) *policy.Index {
	x := policy.New(policy.Config{Node: node})
	x.SetNamespace(model.Namespace{Name: podNamespace})
	selector := func(key, value string) model.PodPeer {
		return model.PodPeer{Namespace: podNamespace, Pods: model.Selector{Labels: map[string]string{key: value}}}
	}
	set := func(name, node, key, value string, addr netip.Addr) {
		x.SetPod(model.Pod{
			Namespace: podNamespace, Name: name, UID: name, Node: node, Phase: "Running",
			Labels: map[string]string{key: value}, IPs: []netip.Addr{addr},
		})
	}
	for _, p := range pods {
		set(p.Name, p.Node, "app", "bench", p.Addr)
		if p.Node == node {
			x.SetEndpoint(model.WorkloadEndpoint{
				Pod: model.PodRef{Namespace: podNamespace, Name: p.Name, UID: p.Name}, Node: node, IfName: "eth0", HostLink: p.Link,
				Addrs: []netip.Addr{p.Addr}, HostEnd: model.HostEndRouted,
			})
		}
	}
	peers := 0
	for i := range policies {
		for range peersOfPolicy {
			addr := netip.AddrFrom4([4]byte{10, byte(64 + peers>>16), byte(peers >> 8), byte(peers)})
			set(fmt.Sprintf("peer-%d", peers), "elsewhere", "of", strconv.Itoa(i), addr)
			peers++
		}
		rule := model.PolicyRule{Action: model.PolicyAccept, Ports: []model.PolicyPort{
			{Protocol: model.TCP, First: port, Last: port}, {Protocol: model.UDP, First: port, Last: port},
		}}
		allowed := selector("of", strconv.Itoa(i))
		rule.Peers = append(rule.Peers, model.PolicyPeer{Pods: &allowed})
		if i == policies-1 {
			own := selector("app", "bench")
			rule.Peers = append(rule.Peers, model.PolicyPeer{Pods: &own})
		}
		direction := model.PolicyDirection{On: true, Rules: []model.PolicyRule{rule}}
		x.SetPolicy(model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: podNamespace, Name: fmt.Sprintf("policy-%d", i)},
			Subject:   selector("app", "bench"), Ingress: direction, Egress: direction,
		})
	}
	return x
}
