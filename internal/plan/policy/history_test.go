// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

// facts are the current facts of an index.
type facts struct {
	pods       map[string]model.Pod
	namespaces map[string]model.Namespace
	nodes      map[string]model.Node
	policies   map[model.PolicyKey]model.Policy
	endpoints  map[model.EndpointKey]model.WorkloadEndpoint
	self       []netip.Addr
	cuts       map[Flow]bool
	tiers      map[model.PolicyTier]model.Tier
	sets       map[string]model.NetworkSet
	accounts   map[string]model.ServiceAccount
	slices     map[string]model.EndpointSlice
	hosts      hostFacts
	cfg        Config
}

func newFacts() *facts {
	return &facts{
		pods: map[string]model.Pod{}, namespaces: map[string]model.Namespace{}, nodes: map[string]model.Node{},
		policies: map[model.PolicyKey]model.Policy{}, endpoints: map[model.EndpointKey]model.WorkloadEndpoint{},
		cuts: map[Flow]bool{}, tiers: map[model.PolicyTier]model.Tier{}, sets: map[string]model.NetworkSet{},
		accounts: map[string]model.ServiceAccount{}, slices: map[string]model.EndpointSlice{},
		hosts: hostFacts{all: map[string]model.HostEndpoint{}, felix: map[string]model.FelixConfiguration{}},
	}
}

// fresh returns an index with all facts set at once, in no particular order.
func (f *facts) fresh() *Index {
	x := New(f.cfg)
	for _, e := range f.endpoints {
		x.SetEndpoint(e)
	}
	for _, p := range f.policies {
		x.SetPolicy(p)
	}
	for _, p := range f.pods {
		x.SetPod(p)
	}
	for _, n := range f.nodes {
		x.SetNode(n)
	}
	for _, n := range f.namespaces {
		x.SetNamespace(n)
	}
	f.calico(x)
	f.setHosts(x)
	x.SetSelf(f.self)
	for c := range f.cuts {
		x.DropReplies(EnforcementPoint{}, c)
	}
	return x
}

func TestHistories(t *testing.T) { rapid.Check(t, history) }

// history sets random facts in an index one after the other. At any time its changes must add up to its tables, and
// these must equal those of a fresh index with the same facts.
func history(t *rapid.T) {
	f, m := newFacts(), mirror{}
	f.cfg = Config{Node: "n1", LogGroup: 7, SeparateChains: rapid.IntRange(0, 1).Draw(t, "apart")}
	x := New(f.cfg)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		for range rapid.IntRange(1, 4).Draw(t, "at once") {
			f.step(t, x)
		}
		m.apply(t, x.Changes())
		got := tablesOf(x)
		if diff := cmp.Diff(m.tables(), got); diff != "" {
			t.Fatalf("the changes (-) and the tables (+):\n%s", diff)
		}
		for place, table := range got {
			sound(t, x, place, table)
		}
	}
	if diff := cmp.Diff(tablesOf(f.fresh()), tablesOf(x)); diff != "" {
		t.Fatalf("fresh (-) and grown (+):\n%s", diff)
	}
	f.end(t, x, m)
}

// end takes everything back: nothing may be left.
func (f *facts) end(t *rapid.T, x *Index, m mirror) {
	for k := range f.policies {
		x.DelPolicy(k)
	}
	for k := range f.endpoints {
		x.DelEndpoint(k)
	}
	for _, p := range f.pods {
		x.DelPod(p.Namespace, p.Name)
	}
	for k := range f.namespaces {
		x.DelNamespace(k)
	}
	for c := range f.cuts {
		x.UndropReplies(EnforcementPoint{}, c)
	}
	f.endCalico(x)
	f.endHosts(x)
	m.apply(t, x.Changes())
	c, gs, es := x.cluster, x.groups, x.endpoints
	left := len(m) + len(x.tables.all) + len(gs.all) + len(gs.of) + len(c.pods.namespaces) + len(c.policies) + len(c.wide) + len(c.tiers) + len(c.sets) + len(c.slices) + len(es.all) +
		len(es.byAddr) + len(es.byLink) +
		len(x.compiler.rules) + len(c.pods.holders.usual) + len(c.pods.holders.six) + len(c.pods.holders.other) + len(c.pods.holders.more)
	if left != 0 {
		t.Fatalf("left: %v, tables %v, groups %v, spaces %v, holders %v, rules %v", m, x.tables.all, gs.all, c.pods.namespaces,
			c.pods.holders, x.compiler.rules)
	}
}

func (f *facts) step(t *rapid.T, x *Index) {
	ns, name := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"),
		rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	switch rapid.IntRange(0, 18).Draw(t, "what") {
	case 0, 1, 2:
		p := drawPod(t, ns, name)
		f.pods[ns+"/"+name] = p
		x.SetPod(p)
	case 3:
		delete(f.pods, ns+"/"+name)
		x.DelPod(ns, name)
	case 4:
		n := model.Namespace{Name: ns, Labels: drawLabels(t)}
		f.namespaces[ns] = n
		x.SetNamespace(n)
	case 5:
		delete(f.namespaces, ns)
		x.DelNamespace(ns)
	case 6, 7, 8:
		p := drawPolicy(t, ns, name)
		f.policies[p.PolicyKey] = p
		x.SetPolicy(p)
	case 9:
		for k := range f.policies {
			if k.Name == name && (k.Namespace == ns || k.Namespace == "") {
				delete(f.policies, k)
				x.DelPolicy(k)
				break
			}
		}
	case 10, 11:
		e := drawEndpoint(t, ns, name)
		f.endpoints[e.Key()] = e
		x.SetEndpoint(e)
	case 12:
		for k := range f.endpoints {
			if k.Namespace == ns && k.Pod == name {
				delete(f.endpoints, k)
				x.DelEndpoint(k)
			}
		}
	case 13:
		if rapid.Bool().Draw(t, "del") {
			delete(f.nodes, name)
			x.DelNode(name)
			return
		}
		n := model.Node{
			Name: name, Labels: drawLabels(t), Addrs: addrs(fmt.Sprintf("192.168.0.%d", rapid.IntRange(1, 3).Draw(t, "node"))),
		}
		f.nodes[name], f.self = n, append(drawAddrs(t), n.Addrs...)
		x.SetNode(n)
		x.SetSelf(f.self)
	case 14:
		f.cut(t, x)
	case 15, 16:
		f.calicoStep(t, x, ns, name)
	case 17, 18:
		f.hostStep(t, x, name)
	}
}

func (f *facts) cut(t *rapid.T, x *Index) {
	pair := rapid.SampledFrom([][]netip.Addr{addrs("10.0.0.1", "10.0.0.2"), addrs("fd00::1", "fd00::2")}).Draw(t, "pair")
	c := Flow{Src: pair[0], Dst: pair[1], Protocol: drawProtocol(t), SrcPort: 4000, DstPort: 80}
	if rapid.Bool().Draw(t, "cut") {
		f.cuts[c] = true
		x.DropReplies(EnforcementPoint{}, c)
		return
	}
	delete(f.cuts, c)
	x.UndropReplies(EnforcementPoint{}, c)
}

func drawLabels(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"app", "tier"}), rapid.SampledFrom([]string{"1", "2"}), 0,
		2).Draw(t, "labels")
}

func drawPod(t *rapid.T, ns, name string) model.Pod {
	return model.Pod{
		Namespace: ns, Name: name, UID: drawUID(t), Labels: drawLabels(t),
		Phase:       rapid.SampledFrom([]string{"Running", "Running", "Pending", "Succeeded"}).Draw(t, "phase"),
		HostNetwork: rapid.IntRange(0, 9).Draw(t, "host network") == 0,
		IPs:         drawAddrs(t), ServiceAccount: rapid.SampledFrom([]string{"", "s"}).Draw(t, "account"),
		Node: rapid.SampledFrom([]string{"", "n1", "n1", "n2"}).Draw(t, "node"),
		Ports: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.PodPort {
			return model.PodPort{
				Name: rapid.SampledFrom([]string{"web", "dns"}).Draw(t, "port"), Protocol: drawProtocol(t),
				Number: uint16(rapid.IntRange(80, 82).Draw(t, "number")),
			}
		}), 0, 2).Draw(t, "ports"),
	}
}

// drawUID draws a pod's UID. Pods are re-created under their names, and addresses are reused; both are generated often.
func drawUID(t *rapid.T) string { return rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "uid") }

func drawAddrs(t *rapid.T) []netip.Addr {
	pool := addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2")
	return rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 0, 2, rapid.ID).Draw(t, "addrs")
}

func drawProtocol(t *rapid.T) model.Protocol {
	return rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP}).Draw(t, "protocol")
}

func drawEndpoint(t *rapid.T, ns, name string) model.WorkloadEndpoint {
	e := model.WorkloadEndpoint{
		Pod:    model.PodRef{Namespace: ns, Name: name, UID: drawUID(t)},
		Node:   rapid.SampledFrom([]string{"n1", "n1", "n2"}).Draw(t, "node"),
		IfName: rapid.SampledFrom([]string{"eth0", "net1"}).Draw(t, "interface"), Addrs: drawAddrs(t),
		HostEnd: model.HostEndRouted,
	}
	if e.HostLink = "cali" + ns + name + e.IfName; e.IfName == "net1" {
		e.Network = "x/net"
		switch rapid.SampledFrom([]model.PolicyPoint{
			model.PointHost, model.PointPod, model.PointTap, model.PointDevice, model.PointPort,
		}).Draw(t, "point") {
		case model.PointPod:
			e.HostEnd = ""
		case model.PointTap:
			e.HostEnd, e.Tap = "", true
		case model.PointDevice:
			e.HostEnd, e.Device = "", "0000:03:02.1"
		case model.PointPort:
			e.HostEnd = model.HostEndPort
		}
	}
	return e
}
