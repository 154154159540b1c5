// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"strings"
	"testing"
)

// A peer cannot take addresses that are not its own: the node's prefix or a part of it, other nodes' pods, the addresses of
// nodes and of their network, ranges of Services, and the default route, unless a filter accepts it.
func TestHostilePeer(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	n.put("other.yaml", nodeManifest("n2", "", []string{"10.244.2.0/24"}, []string{"10.9.0.3"}))
	n.put("config.yaml", `apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false, serviceClusterIPs: [{cidr: 10.96.0.0/16}]}
`)
	n.put("peer.yaml", peerTor)
	refused := []string{
		"10.244.1.0/24", "10.244.1.128/25", "10.244.1.7/32", "10.244.2.0/24", "10.244.2.9/32", "10.9.0.3/32", "10.9.0.128/25",
		"10.96.0.0/16", "10.96.0.1/32", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "0.0.0.0/0",
	}
	config := birdToN1 + "protocol static bad { ipv4;\n"
	for _, p := range refused {
		config += "route " + p + " blackhole;\n"
	}
	startBird(t, tor, config+"}\n")
	n.startSpeaker()
	n.startAgent("")
	n.learns("203.0.113.0/24", "10.9.0.2")
	n.established()
	s := n.status()
	if len(s.Learned) != 1 {
		t.Errorf("learned %+v", s.Learned)
	}
	if p := s.Peers[0]; p.Accepted != 1 || p.Received < 10 {
		t.Errorf("%d of %d routes are accepted", p.Accepted, p.Received)
	}
	for _, p := range refused {
		if r := n.route(p); strings.Contains(r, "via 10.9.0.2") {
			t.Errorf("%s: %s", p, r)
		}
	}

	// The default route, when a filter accepts it; the session continues.
	since := s.Peers[0].Since
	n.put("filter.yaml", `apiVersion: projectcalico.org/v3
kind: BGPFilter
metadata: {name: default-route}
spec: {importV4: [{action: Accept, matchOperator: Equal, cidr: 0.0.0.0/0}, {action: Reject, matchOperator: In, cidr: 203.0.113.0/24}]}
`)
	n.put("peer.yaml", strings.Replace(peerTor, "asNumber: 65001", "asNumber: 65001, filters: [default-route]", 1))
	n.learns("default", "10.9.0.2")
	n.forgets("203.0.113.0/24")
	if now := n.status().Peers[0].Since; now != since {
		t.Error("a filter's change has ended the session")
	}

	// A filter that cannot be read keeps what it was.
	n.put("filter.yaml", `apiVersion: projectcalico.org/v3
kind: BGPFilter
metadata: {name: default-route}
spec: {importV4: [{action: Perhaps}]}
`)
	eventually(t, "the invalid filter is reported", func() bool {
		return strings.Contains(fmt.Sprint(n.status().Problems), "Perhaps")
	}, func() string { return fmt.Sprintf("%+v", n.status()) })
	n.learns("default", "10.9.0.2")
	if now := n.status().Peers[0].Since; now != since || n.route("203.0.113.0/24") != "" {
		t.Error("an invalid filter has ended the session, or lets routes pass")
	}
}
