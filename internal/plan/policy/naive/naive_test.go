// SPDX-License-Identifier: Apache-2.0

package naive_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// The evaluator is useful as a reference only if it is short enough to review.
func TestNaiveIsShort(t *testing.T) {
	text, err := os.ReadFile("naive.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 180 {
		t.Errorf("the evaluator has %d lines, more than 180", n)
	}
}

// places are the addresses of the names in the cases.
func places() map[string]netip.Addr {
	out := map[string]netip.Addr{
		"node1": {}, "node2": {}, "out": netip.MustParseAddr("203.0.113.7"), "out6": netip.MustParseAddr("2001:db8::7"),
	}
	out["node1"], out["node2"] = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i, name := range []string{"x/a", "x/b", "x/c", "z/a", "z/b"} {
		out[name], out[name+"6"] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}),
			netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1))
	}
	out["x/a@net"], out["x/b@net"], out["z/a@net"] = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2"),
		netip.MustParseAddr("10.9.0.4")
	return out
}

// world has two namespaces, x with pods a, b, c and z with pods a, b, whose labels are their names; the last of each is
// on node2, the others on node1. Each a listens on web: 80 in x, 8080 in z.
func world() naive.World {
	w := naive.World{
		Namespaces: map[string]map[string]string{
			"x": {"ns": "x", "kubernetes.io/metadata.name": "x"}, "z": {"ns": "z", "kubernetes.io/metadata.name": "z"},
		},
		Nodes: map[string]naive.Node{},
	}
	at := places()
	for _, n := range []string{"node1", "node2"} {
		w.Nodes[n] = naive.Node{Labels: map[string]string{"node": n}, Addrs: []netip.Addr{at[n]}}
	}
	for _, name := range []string{"x/a", "x/b", "x/c", "z/a", "z/b"} {
		ns, pod, _ := strings.Cut(name, "/")
		p := naive.Pod{
			Namespace: ns, Name: pod, Node: "node1", Labels: map[string]string{"pod": pod},
			Addrs: map[string][]netip.Addr{"": {at[name], at[name+"6"]}},
		}
		if name == "x/c" || name == "z/b" {
			p.Node = "node2"
		}
		if pod == "a" {
			p.Ports = []naive.PodPort{{Name: "web", Proto: "TCP", Port: map[string]int{"x": 80, "z": 8080}[ns]}}
		}
		if a := at[name+"@net"]; a.IsValid() {
			p.Addrs["x/net"] = []netip.Addr{a}
		}
		w.Pods = append(w.Pods, p)
	}
	return w
}

// add reads a policy: "networks" makes it a MultiNetworkPolicy, "tier" in its specification a ClusterNetworkPolicy.
func add(t *testing.T, w *naive.World, text string) {
	t.Helper()
	if strings.Contains(text, "tier:") {
		var c naive.ClusterPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		w.Cluster = append(w.Cluster, c)
		return
	}
	var p naive.NetworkPolicy
	if head, rest, is := strings.Cut(text, "networks: x/net\n"); is {
		p.Networks, text = []string{"x/net"}, head+rest
	}
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	for _, rules := range [][]naive.Rule{p.Spec.Ingress, p.Spec.Egress} {
		for _, r := range rules {
			for i := range r.Ports {
				if n, is := r.Ports[i].Port.(float64); is {
					r.Ports[i].Port = int(n)
				}
			}
		}
	}
	w.Policies = append(w.Policies, p)
}

// TestAllowed is the checklist of policy semantics. Each case lists which packets ("from to PROTO[/port]") are allowed.
func TestAllowed(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			w := world()
			if c.change != nil {
				c.change(&w)
			}
			for _, text := range c.policies {
				add(t, &w, text)
			}
			for want, lines := range map[bool][]string{true: c.pass, false: c.stop} {
				for _, line := range lines {
					if got := w.Allowed(packet(t, line)); got != want {
						t.Errorf("%s: allowed %t, want %t", line, got, want)
					}
				}
			}
		})
	}
}

func packet(t *testing.T, line string) naive.Packet {
	t.Helper()
	f, at := strings.Fields(line), places()
	p := naive.Packet{Src: at[f[0]], Dst: at[f[1]]}
	p.Proto, _, _ = strings.Cut(f[2], "/")
	if !p.Src.IsValid() || !p.Dst.IsValid() {
		t.Fatalf("%s: no such place", line)
	}
	if _, err := fmt.Sscanf(f[2], p.Proto+"/%d", &p.Port); err != nil && p.Proto != "ICMP" {
		t.Fatalf("%s: %v", line, err)
	}
	return p
}
