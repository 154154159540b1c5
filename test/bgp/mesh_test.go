// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// With the backend bgp nodes learn the prefixes of each other's pods, of both families, over sessions with a password, and
// nothing else routes to them.
func TestMesh(t *testing.T) {
	a, b := newNode(t, "n1"), newNode(t, "n2")
	connect(t, a.ns, "eth0", "10.9.0.1/24 fd09::1/64", b.ns, "eth0", "10.9.0.2/24 fd09::2/64")
	all := func(file, text string) {
		for _, n := range []*node{a, b} {
			n.put(file, text)
		}
	}
	all("n1.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24", "fd44:1::/64"}, []string{"10.9.0.1", "fd09::1"}))
	all("n2.yaml", nodeManifest("n2", "", []string{"10.244.2.0/24", "fd44:2::/64"}, []string{"10.9.0.2", "fd09::2"}))
	all("config.yaml", `apiVersion: crd.projectcalico.org/v1
kind: BGPConfiguration
metadata: {name: default}
spec: {asNumber: 64999, nodeMeshPassword: {secretKeyRef: {name: mesh, key: password}}}
`)
	secret := `apiVersion: v1
kind: Secret
metadata: {name: mesh, namespace: kube-system}
stringData: {password: %s}
`
	all("secret.yaml", fmt.Sprintf(secret, "first"))
	for _, n := range []*node{a, b} {
		n.startSpeaker()
		n.startAgent("network: {encapsulation: bgp}\n")
	}
	a.learns("10.244.2.0/24", "10.9.0.2")
	a.learns("fd44:2::/64", "fd09::2")
	b.learns("10.244.1.0/24", "10.9.0.1")
	b.learns("fd44:1::/64", "fd09::1")
	a.established()
	s := a.status()
	if len(s.Peers) != 2 || s.ASN != 64999 {
		t.Fatalf("%+v", s)
	}

	// Another password: the sessions begin again, and the routes stay.
	since := s.Peers[0].Since
	all("secret.yaml", fmt.Sprintf(secret, "second"))
	eventually(t, "the session is another one", func() bool {
		s := a.status()
		return len(s.Peers) == 2 && s.Peers[0].Session == "established" && s.Peers[1].Session == "established" &&
			s.Peers[0].Since != since
	}, func() string { return fmt.Sprintf("%+v", a.status()) })
	a.learns("10.244.2.0/24", "10.9.0.2")

	// A node without the password has no session.
	a.put("secret.yaml", fmt.Sprintf(secret, "wrong"))
	b.forgets("10.244.1.0/24")
}

// attach connects a namespace to a bridge.
func attach(t *testing.T, sw, ns *netns.NS, port, addr string) {
	t.Helper()
	connect(t, ns, "eth0", addr, sw, port, "")
	nettest.Run(t, sw, "ip", "link", "set", port, "master", "br0")
}

// Two routers that announce the same prefix share the load; if one is lost, the other one has it all.
func TestECMP(t *testing.T) {
	n, sw := newNode(t, "n1"), nettest.NS(t, "switch")
	nettest.Run(t, sw, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, sw, "ip", "link", "set", "br0", "up")
	attach(t, sw, n.ns, "p1", "10.9.0.1/24")
	n.put("n1.yaml", nodeManifest("n1", "rack: a", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	var birds []*bird
	for _, i := range []string{"2", "3"} {
		tor := nettest.NS(t, "tor"+i)
		nettest.Run(t, tor, "ip", "link", "set", "lo", "up")
		attach(t, sw, tor, "p"+i, "10.9.0."+i+"/24")
		birds = append(birds, startBird(t, tor, strings.ReplaceAll(birdToN1, "10.9.0.2", "10.9.0."+i)))
		n.put("tor"+i+".yaml", `apiVersion: weft.dev/v1alpha1
kind: BGPPeer
metadata: {name: tor`+i+`}
spec: {nodeSelector: "rack == 'a'", peerIP: 10.9.0.`+i+`, asNumber: 65001}
`)
	}
	n.startSpeaker()
	n.startAgent("")
	n.learns("203.0.113.0/24", "10.9.0.2")
	n.learns("203.0.113.0/24", "10.9.0.3")
	if r := n.route("203.0.113.0/24"); strings.Count(r, "nexthop") != 2 {
		t.Errorf("route %q", r)
	}
	birds[0].ask("disable", "s4")
	eventually(t, "one router is left", func() bool {
		r := n.route("203.0.113.0/24")
		return strings.Contains(r, "via 10.9.0.3") && !strings.Contains(r, "10.9.0.2")
	}, func() string { return n.route("203.0.113.0/24") })
}

// 10,000 routes are in the kernel, in bounded memory, and go again.
func TestManyRoutes(t *testing.T) {
	const count = 10_000
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	n.put("peer.yaml", peerTor)
	config := birdToN1 + "protocol static many { ipv4;\n"
	for i := range count {
		config += fmt.Sprintf("route 100.%d.%d.%d/30 blackhole;\n", 64+i>>14, i>>6&255, i&63*4)
	}
	b := startBird(t, tor, config+"}\n")
	n.startSpeaker()
	n.startAgent("")
	routes := func() int {
		out, _ := nettest.Try(n.ns, "ip", "route", "show", "proto", "119")
		return strings.Count(out, "via 10.9.0.2")
	}
	eventually(t, "all routes are in the kernel", func() bool { return routes() == count+1 },
		func() string { return strconv.Itoa(routes()) })
	const most = 200 << 20
	for _, p := range []*process{n.speaker, n.agent} {
		if rss := residentOf(t, p); rss > most {
			t.Errorf("%s has %d bytes in memory, more than %d", p.cmd.Path, rss, most)
		}
	}
	b.ask("disable", "many")
	eventually(t, "the withdrawn routes are gone", func() bool { return routes() == 1 }, func() string { return strconv.Itoa(routes()) })
}

// residentOf returns the memory of a process, in bytes.
func residentOf(t *testing.T, p *process) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("the process has no VmRSS")
	return 0
}
