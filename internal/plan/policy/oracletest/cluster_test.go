// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"fmt"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// second is a secondary network; some pods have an interface on it.
const second = "x/net"

func namespaces() []string { return []string{"x", "y", "z"} }
func nodes() []string      { return []string{"n1", "n2"} }

func nodeAddrs(name string) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2." + name[1:]), netip.MustParseAddr("2001:db8:1::" + name[1:])}
}

// outside are addresses outside the cluster.
func outside() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("203.0.113.200"), netip.MustParseAddr("2001:db8:ff::7"),
	}
}

// draw draws random parts of a cluster.
type draw struct {
	*rapid.T
	// plain omits the second network.
	plain bool
}

func (d draw) yes(what string) bool { return rapid.Bool().Draw(d.T, what) }

// seldom returns true in one of n cases.
func (d draw) seldom(in int, what string) bool { return rapid.IntRange(1, in).Draw(d.T, what) == in }

func (d draw) number(from, to int, what string) int { return rapid.IntRange(from, to).Draw(d.T, what) }

func (d draw) one(what string, of ...string) string { return rapid.SampledFrom(of).Draw(d.T, what) }

// labels draws from few keys and values, so that selectors match them.
func (d draw) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"app", "tier"} {
		if v := d.one(k, "", "a", "b", "c"); v != "" {
			out[k] = v
		}
	}
	return out
}

func (d draw) namespace(name string) map[string]string {
	out := d.labels()
	out["kubernetes.io/metadata.name"] = name
	return out
}

func (d draw) selector() naive.Selector {
	var s naive.Selector
	for range d.number(0, 2, "conditions") {
		key, v := d.one("key", "app", "tier"), d.one("value", "a", "b", "c")
		switch d.one("operator", "=", "In", "NotIn", "Exists", "DoesNotExist") {
		case "=":
			s.MatchLabels = map[string]string{key: v}
		case "In":
			s.MatchExpressions = append(s.MatchExpressions, naive.Expression{Key: key, Operator: "In", Values: []string{v, "a"}})
		case "NotIn":
			s.MatchExpressions = append(s.MatchExpressions, naive.Expression{Key: key, Operator: "NotIn", Values: []string{v}})
		case "Exists":
			s.MatchExpressions = append(s.MatchExpressions, naive.Expression{Key: key, Operator: "Exists"})
		default:
			s.MatchExpressions = append(s.MatchExpressions, naive.Expression{Key: key, Operator: "DoesNotExist"})
		}
	}
	return s
}

func (d draw) ofNamespaces() naive.Selector {
	if d.yes("by name") {
		return naive.Selector{
			MatchLabels: map[string]string{"kubernetes.io/metadata.name": d.one("namespace", namespaces()...)},
		}
	}
	return d.selector()
}

func podAddrs(node, number int, both bool) []netip.Addr {
	out := []netip.Addr{netip.AddrFrom4([4]byte{10, byte(node), 0, byte(number)})}
	if both {
		out = append(out, netip.MustParseAddr(fmt.Sprintf("fd00:%d::%d", node, number)))
	}
	return out
}

// pod draws a pod; its name and addresses follow from its number.
func (d draw) pod(number int) naive.Pod {
	node := d.number(1, len(nodes()), "node")
	p := naive.Pod{
		Namespace: d.one("of namespace", namespaces()...), Name: fmt.Sprintf("p%d", number), Node: nodes()[node-1],
		Labels: d.labels(),
	}
	p.Addrs = map[string][]netip.Addr{"": podAddrs(node, number, !d.seldom(4, "IPv4 only"))}
	if !d.plain && d.seldom(2, "second network") {
		p.Addrs[second] = []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 0, byte(number)})}
	}
	if d.seldom(8, "host network") {
		p.HostNetwork, p.Addrs = true, map[string][]netip.Addr{"": nodeAddrs(p.Node)}
	}
	if d.yes("web") {
		p.Ports = append(p.Ports, naive.PodPort{Name: "web", Proto: "TCP", Port: []int{80, 8080}[number%2]})
	}
	if d.yes("dns") {
		p.Ports = append(p.Ports, naive.PodPort{Name: "dns", Proto: "UDP", Port: 53})
	}
	p.Done = d.seldom(8, "completed")
	return p
}

func (d draw) protocol() string {
	return d.one("protocol", "", "TCP", "UDP", "SCTP")
}

func (d draw) ports() []naive.Port {
	var out []naive.Port
	for range d.number(0, 2, "ports") {
		p := naive.Port{Protocol: d.protocol()}
		switch d.one("port", "any", "number", "range", "name") {
		case "number":
			p.Port = rapid.SampledFrom([]int{53, 80, 81, 8080}).Draw(d.T, "number")
		case "range":
			p.Port, p.EndPort = 80, rapid.SampledFrom([]int{80, 81, 9000}).Draw(d.T, "end")
		case "name":
			p.Port = d.one("named", "web", "dns")
		}
		out = append(out, p)
	}
	return out
}

// block draws an ipBlock with addresses of the cluster, sometimes with exceptions.
func (d draw) block() *naive.IPBlock {
	switch d.one("block", "all", "all6", "outside", "pod", "pod6", "pods", "node") {
	case "all":
		return &naive.IPBlock{CIDR: "0.0.0.0/0", Except: d.except("10.1.0.0/16", "203.0.113.7/32", "10.1.0.2/32")}
	case "all6":
		return &naive.IPBlock{CIDR: "::/0", Except: d.except("fd00:1::/64", "2001:db8:ff::7/128")}
	case "outside":
		return &naive.IPBlock{
			CIDR: "203.0.113.0/24", Except: d.except("203.0.113.0/28", "203.0.113.200/32", "203.0.113.128/25"),
		}
	case "pod":
		return &naive.IPBlock{CIDR: fmt.Sprintf("10.1.0.%d/32", d.number(1, 8, "of"))}
	case "pod6":
		return &naive.IPBlock{CIDR: fmt.Sprintf("fd00:2::%d/128", d.number(1, 8, "of"))}
	case "node":
		return &naive.IPBlock{CIDR: "192.0.2.0/31"}
	}
	return &naive.IPBlock{CIDR: "10.0.0.0/8", Except: d.except("10.2.0.0/24", "10.1.0.0/29")}
}

func (d draw) except(of ...string) []string {
	return slices.DeleteFunc(of, func(string) bool { return d.yes("except") })
}

func (d draw) peers() []naive.Peer {
	var out []naive.Peer
	for range d.number(0, 2, "peers") {
		var p naive.Peer
		switch kind := d.one("peer", "pods", "namespaces", "both", "block"); kind {
		case "block":
			p.IPBlock = d.block()
		default:
			if kind != "pods" {
				s := d.ofNamespaces()
				p.NamespaceSelector = &s
			}
			if kind != "namespaces" {
				s := d.selector()
				p.PodSelector = &s
			}
		}
		out = append(out, p)
	}
	return out
}

// policy draws a NetworkPolicy, or sometimes a MultiNetworkPolicy.
func (d draw) policy(name string) naive.NetworkPolicy {
	p := naive.NetworkPolicy{Metadata: naive.Metadata{Name: name, Namespace: d.one("of namespace", namespaces()...)}}
	if !d.plain && d.seldom(4, "second network") {
		p.Networks = []string{second}
	}
	p.Spec.PodSelector = d.selector()
	p.Spec.PolicyTypes = rapid.SampledFrom([][]string{
		nil, {"Ingress"}, {"Egress"}, {"Ingress", "Egress"},
	}).Draw(d.T, "types")
	for range d.number(0, 2, "ingress rules") {
		p.Spec.Ingress = append(p.Spec.Ingress, naive.Rule{From: d.peers(), Ports: d.ports()})
	}
	for range d.number(0, 2, "egress rules") {
		p.Spec.Egress = append(p.Spec.Egress, naive.Rule{To: d.peers(), Ports: d.ports()})
	}
	return p
}

// clusterPolicy draws a ClusterNetworkPolicy. No two have the same priority: the specification leaves their order open.
func (d draw) clusterPolicy(name string, priority int) naive.ClusterPolicy {
	c := naive.ClusterPolicy{Metadata: naive.Metadata{Name: name}}
	c.Spec.Tier, c.Spec.Priority, c.Spec.Subject = d.one("tier", "Admin", "Baseline"), priority, d.clusterPods()
	rule := func(peers func() naive.ClusterPeer) naive.ClusterRule {
		r := naive.ClusterRule{Action: d.one("action", "Accept", "Deny", "Pass"), Protocols: d.protocols()}
		for range d.number(1, 2, "cluster peers") {
			peer := peers()
			r.To = append(r.To, peer)
			if len(peer.Networks) > 0 || peer.Nodes != nil { // which have no named ports
				r.Protocols = slices.DeleteFunc(r.Protocols, func(p naive.Protocol) bool { return p.Named != "" })
			}
		}
		return r
	}
	for range d.number(0, 2, "ingress rules") {
		r := rule(d.clusterPods)
		r.From, r.To = r.To, nil
		c.Spec.Ingress = append(c.Spec.Ingress, r)
	}
	for range d.number(0, 2, "egress rules") {
		c.Spec.Egress = append(c.Spec.Egress, rule(d.clusterPeer))
	}
	return c
}

func (d draw) clusterPods() naive.ClusterPeer {
	s := d.ofNamespaces()
	if d.yes("namespaces") {
		return naive.ClusterPeer{Namespaces: &s}
	}
	return naive.ClusterPeer{Pods: &naive.Both{NamespaceSelector: s, PodSelector: d.selector()}}
}

func (d draw) clusterPeer() naive.ClusterPeer {
	switch d.one("cluster peer", "pods", "nodes", "networks") {
	case "nodes":
		return naive.ClusterPeer{Nodes: &naive.Selector{MatchLabels: map[string]string{"node": d.one("node", nodes()...)}}}
	case "networks":
		return naive.ClusterPeer{Networks: []string{d.block().CIDR}}
	}
	return d.clusterPods()
}

func (d draw) protocols() []naive.Protocol {
	var out []naive.Protocol
	for range d.number(0, 2, "protocols") {
		port := rapid.SampledFrom([]*naive.Ports{
			nil, {Number: 80}, {Number: 53}, {Range: &naive.Range{Start: 80, End: 8080}},
		}).Draw(d.T, "destination port")
		of := &naive.ProtocolPort{DestinationPort: port}
		switch d.one("protocol", "tcp", "udp", "sctp", "name") {
		case "tcp":
			out = append(out, naive.Protocol{TCP: of})
		case "udp":
			out = append(out, naive.Protocol{UDP: of})
		case "sctp":
			out = append(out, naive.Protocol{SCTP: of})
		default:
			out = append(out, naive.Protocol{Named: d.one("named", "web", "dns")})
		}
	}
	return out
}

// world draws a cluster.
func (d draw) world(pods, policies, cluster int) naive.World {
	w := naive.World{Namespaces: map[string]map[string]string{}, Nodes: map[string]naive.Node{}}
	for _, n := range namespaces() {
		w.Namespaces[n] = d.namespace(n)
	}
	for _, n := range nodes() {
		w.Nodes[n] = naive.Node{Labels: map[string]string{"node": n}, Addrs: nodeAddrs(n)}
	}
	for i := range d.number(2, pods, "pods") {
		w.Pods = append(w.Pods, d.pod(i+1))
	}
	for i := range d.number(0, policies, "policies") {
		w.Policies = append(w.Policies, d.policy(fmt.Sprintf("np%d", i)))
	}
	for i := range d.number(0, cluster, "cluster policies") {
		w.Cluster = append(w.Cluster, d.clusterPolicy(fmt.Sprintf("cnp%d", i), (i*7)%5))
	}
	return w
}
