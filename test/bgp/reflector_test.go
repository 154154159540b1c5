// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// birdReflector is a route reflector outside of the cluster.
const birdReflector = `
router id 10.9.0.5;
template bgp reflected {
  local 10.9.0.5 as 64512;
  rr client;
  rr cluster id 244.0.0.2;
  graceful restart on;
  ipv4 { import all; export where source = RTS_BGP; };
}
protocol bgp n1 from reflected { neighbor 10.9.0.1 as 64512; }
protocol bgp n2 from reflected { neighbor 10.9.0.2 as 64512; }
`

// Without a mesh of nodes, the routes to other nodes' pods come from route reflectors: a node with Calico's annotation, and
// a router. Nodes have no sessions with each other. The loss of one reflector, for longer than its restart time, and its
// return lose no packet; neither does the loss of the other one then.
func TestRouteReflectors(t *testing.T) {
	sw := nettest.NS(t, "switch")
	nettest.Run(t, sw, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, sw, "ip", "link", "set", "br0", "up")
	nodes := map[string]*node{}
	for i, name := range []string{"n1", "n2", "n3"} {
		nodes[name] = newNode(t, name)
		attach(t, sw, nodes[name].ns, "p"+name, fmt.Sprintf("10.9.0.%d/24", i+1))
	}
	router := nettest.NS(t, "rr")
	nettest.Run(t, router, "ip", "link", "set", "lo", "up")
	attach(t, sw, router, "prr", "10.9.0.5/24")
	for _, n := range nodes {
		for i, name := range []string{"n1", "n2"} {
			n.put(name+".yaml", nodeManifest(name, "", []string{fmt.Sprintf("10.244.%d.0/24", i+1)}, []string{fmt.Sprintf("10.9.0.%d", i+1)}))
		}
		n.put("n3.yaml", strings.Replace(nodeManifest("n3", `route-reflector: "true"`, []string{"10.244.3.0/24"}, []string{"10.9.0.3"}),
			"metadata:\n", "metadata:\n  annotations: {projectcalico.org/RouteReflectorClusterID: 244.0.0.1}\n", 1))
		n.put("config.yaml", `apiVersion: crd.projectcalico.org/v1
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false}
`)
		n.put("node-reflector.yaml", `apiVersion: crd.projectcalico.org/v1
kind: BGPPeer
metadata: {name: node-reflector}
spec: {nodeSelector: "!has(route-reflector)", peerSelector: has(route-reflector), maxRestartTime: 3s}
`)
		n.put("router.yaml", `apiVersion: crd.projectcalico.org/v1
kind: BGPPeer
metadata: {name: router}
spec: {nodeSelector: "!has(route-reflector)", peerIP: 10.9.0.5, asNumber: 64512, maxRestartTime: 3s}
`)
	}
	b := startBird(t, router, birdReflector)
	a, c, reflector := nodes["n1"], nodes["n2"], nodes["n3"]
	for _, n := range nodes {
		n.startSpeaker()
		n.startAgent("network: {encapsulation: bgp}\n")
	}
	a.learns("10.244.2.0/24", "10.9.0.2")
	c.learns("10.244.1.0/24", "10.9.0.1")
	a.learns("10.244.3.0/24", "10.9.0.3")
	for _, n := range nodes {
		n.established()
	}
	if s := a.status(); len(s.Peers) != 2 || s.Peers[0].Addr.String() != "10.9.0.3" || s.Peers[1].Addr.String() != "10.9.0.5" {
		t.Errorf("sessions of n1: %+v", s.Peers)
	}
	b.hears("10.244.1.0/24", "from 10.9.0.1", true)

	// both waits until n1 and n2 have the routes of both reflectors, of which the node announces its own, too: only then is
	// the loss of one no loss.
	both := func() {
		t.Helper()
		for _, n := range []*node{a, c} {
			eventually(t, n.name+" has the routes of both reflectors", func() bool {
				p := n.status().Peers
				return len(p) == 2 && p[0].Accepted == 2 && p[1].Accepted == 1
			}, func() string { return fmt.Sprintf("%+v", n.status()) })
		}
	}
	both()
	nettest.Run(t, a.ns, "ip", "addr", "add", "10.244.1.7/32", "dev", "lo")
	nettest.Run(t, c.ns, "ip", "addr", "add", "10.244.2.7/32", "dev", "lo")
	f := flow(t, a.ns, "10.244.1.7", c.ns, "10.244.2.7")
	f.moves(t)

	// learnedFrom waits until n1's route to n2's pods comes from one peer only.
	learnedFrom := func(peer string) {
		t.Helper()
		eventually(t, "n1 learns the route from "+peer, func() bool {
			for _, l := range a.status().Learned {
				if l.Prefix.String() == "10.244.2.0/24" {
					return len(l.Paths) == 1 && l.Paths[0].Peer.String() == peer && !l.Paths[0].Stale && l.Link != ""
				}
			}
			return false
		}, func() string { return fmt.Sprintf("%+v", a.status()) })
	}
	reflector.speaker.kill()
	a.forgets("10.244.3.0/24") // its restart time is over
	learnedFrom("10.9.0.5")
	f.moves(t)
	reflector.startSpeaker()
	a.learns("10.244.3.0/24", "10.9.0.3")
	a.established()
	c.established()
	both()
	b.kill()
	learnedFrom("10.9.0.3")
	f.moves(t)
	f.end()
	if lost := f.lost.Load(); lost > 0 {
		t.Errorf("%d of %d datagrams are lost", lost, f.sent.Load())
	}
	a.learns("10.244.2.0/24", "10.9.0.2")
}
