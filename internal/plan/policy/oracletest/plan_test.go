// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
	"github.com/weft-net/weft/internal/state"
)

// plans are the tables that each node's compiler computes for a cluster.
type plans map[string]map[model.PodRef]state.Table

// compile computes the tables of each node from a whole cluster.
func compile(w naive.World, cfg policy.Config) plans {
	out := plans{}
	for _, node := range nodes() {
		cfg.Node = node
		x := policy.New(cfg)
		learn(x, w)
		out[node] = tables(x)
	}
	return out
}

func tables(x *policy.Index) map[model.PodRef]state.Table {
	out := map[model.PodRef]state.Table{}
	for _, table := range x.Tables() {
		out[table.Point.Pod] = table.Table
	}
	return out
}

// TestPlans compares the verdict of the compiled tables with the reference evaluator, for random clusters and all
// packets between all endpoints.
func TestPlans(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw{T: rt}
		w := d.world(7, 6, 4)
		p := compile(w, policy.Config{})
		for _, packet := range packets(w) {
			got, err := p.allowed(w, packet)
			if err != nil {
				rt.Fatal(err)
			}
			if want := w.Allowed(packet); got != want {
				rt.Fatalf("%s: the plan says %t, the specification %t\n%s\n%s", describePacket(w, packet), got, want,
					describe(w), p)
			}
		}
	})
}

// packets returns the packets between all pairs whose addresses are of one network and family.
func packets(w naive.World) []naive.Packet {
	var out []naive.Packet
	at := allAddresses(w)
	for _, src := range at {
		for _, dst := range at {
			if src == dst || src.Is4() != dst.Is4() || onSecond(src) != onSecond(dst) {
				continue
			}
			for _, proto := range []string{"TCP", "UDP", "SCTP"} {
				for _, port := range []int{53, 80, 81, 8080} {
					out = append(out, naive.Packet{Src: src, Dst: dst, Proto: proto, Port: port})
				}
			}
			out = append(out, naive.Packet{Src: src, Dst: dst, Proto: "ICMP"})
		}
	}
	return out
}

func onSecond(a netip.Addr) bool { return netip.MustParsePrefix("172.16.0.0/16").Contains(a) }

func allAddresses(w naive.World) []netip.Addr {
	at := append(outside(), netip.MustParseAddr("172.16.9.9"))
	for _, n := range nodes() {
		at = append(at, nodeAddrs(n)...)
	}
	for _, pod := range w.Pods {
		if !pod.HostNetwork && !pod.Done {
			at = append(append(at, pod.Addrs[""]...), pod.Addrs[second]...)
		}
	}
	return at
}

// of returns the running pod with that address.
func of(w naive.World, a netip.Addr) *naive.Pod {
	for i, pod := range w.Pods {
		if !pod.HostNetwork && !pod.Done && (slices.Contains(pod.Addrs[""], a) || slices.Contains(pod.Addrs[second], a)) {
			return &w.Pods[i]
		}
	}
	return nil
}

// allowed evaluates all hooks on a packet's path.
func (p plans) allowed(w naive.World, packet naive.Packet) (bool, error) {
	for _, stop := range way(w, packet) {
		table, is := p[stop.node][stop.pod]
		if !is {
			continue
		}
		if ok, err := passes(table, stop.frame); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// stop is a hook on a packet's path: of a node, or of a pod on it.
type stop struct {
	node string
	pod  model.PodRef
	frame
}

func refOf(p *naive.Pod) model.PodRef {
	return model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: "uid-" + p.Namespace + "-" + p.Name}
}

func linkOf(p *naive.Pod) string { return "cali-" + p.Name }

// way returns the hooks on a packet's path, in their order.
func way(w naive.World, p naive.Packet) []stop {
	src, dst := of(w, p.Src), of(w, p.Dst)
	f := frame{src: p.Src, dst: p.Dst, proto: strings.ToLower(p.Proto), port: p.Port, icmp: 8}
	if f.proto == "icmp" && !p.Src.Is4() {
		f.proto, f.icmp = "ipv6-icmp", 128
	}
	at := func(node string, pod model.PodRef, hook, in, out string) stop {
		f.hook, f.in, f.out = hook, in, out
		return stop{node, pod, f}
	}
	var out []stop
	switch {
	case onSecond(p.Src):
		if src != nil {
			out = append(out, at(src.Node, refOf(src), "output", "", "net1"))
		}
		if dst != nil {
			out = append(out, at(dst.Node, refOf(dst), "input", "net1", ""))
		}
	case src != nil && slices.Contains(nodeAddrs(src.Node), p.Dst):
		out = append(out, at(src.Node, model.PodRef{}, "input", linkOf(src), ""))
	case dst != nil && slices.Contains(nodeAddrs(dst.Node), p.Src):
		out = append(out, at(dst.Node, model.PodRef{}, "output", "", linkOf(dst)))
	case src != nil && dst != nil && src.Node == dst.Node:
		out = append(out, at(src.Node, model.PodRef{}, "forward", linkOf(src), linkOf(dst)))
	default:
		if src != nil {
			out = append(out, at(src.Node, model.PodRef{}, "forward", linkOf(src), "eth0"))
		}
		if dst != nil {
			out = append(out, at(dst.Node, model.PodRef{}, "forward", "eth0", linkOf(dst)))
		}
	}
	return out
}

func describePacket(w naive.World, p naive.Packet) string {
	name := func(a netip.Addr) string {
		if pod := of(w, a); pod != nil {
			return fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, a)
		}
		return a.String()
	}
	return fmt.Sprintf("%s to %s %s/%d", name(p.Src), name(p.Dst), p.Proto, p.Port)
}
