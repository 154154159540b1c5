// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/naive"
	"github.com/weft-net/weft/internal/plan/policy/reach"
)

// TestReach: what the matrix of a network says of two groups is what the reference evaluator says of each of their pods,
// on the cluster's network and on a further one.
func TestReach(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw{T: rt}
		w := d.world(6, 6, 4)
		for _, network := range []string{"", second} {
			r := reach.New(reachInput(w, network))
			for _, from := range r.Groups {
				for _, to := range r.Groups {
					if c, ok := r.Connection(from, to); ok && !(from.Outside || to.Outside) {
						checkPairs(rt, w, network, from, to, c)
					}
				}
			}
		}
	})
}

// reachInput returns what the datastore has of a cluster.
func reachInput(w naive.World, network string) reach.Input {
	in := reach.Input{Network: network}
	for name, labels := range w.Namespaces {
		in.Namespaces = append(in.Namespaces, model.Namespace{Name: name, Labels: labels})
	}
	for _, p := range w.Policies {
		in.Policies = append(in.Policies, modelPolicy(p))
	}
	for _, p := range w.Cluster {
		in.Policies = append(in.Policies, modelCluster(p))
	}
	for i := range w.Pods {
		in.Pods = append(in.Pods, modelPod(&w.Pods[i]))
		if !w.Pods[i].Done && !w.Pods[i].HostNetwork {
			in.Endpoints = append(in.Endpoints, endpoints(&w.Pods[i])...)
		}
	}
	return in
}

// checkPairs compares a connection between groups with those of all pods of them.
func checkPairs(rt *rapid.T, w naive.World, network string, from, to *reach.Group, c reach.Connection) {
	for _, a := range from.Pods {
		for _, b := range to.Pods {
			src, dst := pairOf(w, network, from.Namespace+"/"+a, to.Namespace+"/"+b)
			if !src.IsValid() || from == to && a == b {
				continue
			}
			for _, protocol := range []string{"TCP", "UDP", "SCTP", "ICMP"} {
				for _, port := range []int{1, 53, 80, 81, 8080, 9000, 65535} {
					p := naive.Packet{Src: src, Dst: dst, Proto: protocol, Port: port}
					if protocol == "ICMP" {
						p.Port = 0
					}
					if got, want := has(c, p), w.Allowed(p); got != want {
						rt.Fatalf("network %q: %s: the matrix says %t by %+v, the specification %t\n%s", network, describePacket(w, p), got, c, want, describe(w))
					}
				}
			}
		}
	}
}

// pairOf returns addresses of one family of two pods, IPv4 if both have it.
func pairOf(w naive.World, network, from, to string) (src, dst netip.Addr) {
	addrs := func(name string) []netip.Addr {
		i := slices.IndexFunc(w.Pods, func(p naive.Pod) bool { return p.Namespace+"/"+p.Name == name })
		return w.Pods[i].Addrs[network]
	}
	for _, a := range addrs(from) {
		for _, b := range addrs(to) {
			if a.Is4() == b.Is4() && (!src.IsValid() || a.Is4()) {
				src, dst = a, b
			}
		}
	}
	return src, dst
}

// has reports whether a connection has the port of a packet.
func has(c reach.Connection, p naive.Packet) bool {
	if c.Verdict != reach.Some {
		return c.Verdict == reach.All
	}
	if p.Proto == "ICMP" {
		return slices.Contains(c.Ports, "protocols without ports")
	}
	return slices.ContainsFunc(c.Ports, func(text string) bool {
		numbers, protocol, _ := strings.Cut(text, "/")
		first, last, isRange := strings.Cut(numbers, "-")
		if !isRange {
			last = first
		}
		from, _ := strconv.Atoi(first)
		until, _ := strconv.Atoi(last)
		return text == "all of "+strings.ToLower(p.Proto) || protocol == strings.ToLower(p.Proto) && from <= p.Port && p.Port <= until
	})
}
