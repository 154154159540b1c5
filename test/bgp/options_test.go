// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"strings"
	"testing"
)

const birdOptions = `
router id 10.9.0.2;
protocol static s4 { ipv4; route 203.0.113.0/24 blackhole { bgp_path.prepend(64777); }; route 198.51.100.0/24 blackhole; }
protocol bgp n1 {
  local 10.9.0.2 as 65001;
  neighbor 10.9.0.1 as 64777;
  ttl security on;
  graceful restart on;
  ipv4 { import all; export where source = RTS_STATIC; next hop self; };
}
`

// The fields of a BGPPeer and of prefixAdvertisements have Calico's meaning at a router.
func TestPeerOptions(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	n.put("config.yaml", `apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec:
  nodeToNodeMeshEnabled: false
  logSeverityScreen: Debug
  bindMode: NodeIP
  communities: [{name: pods, value: "65000:100"}]
  prefixAdvertisements: [{cidr: 10.244.0.0/16, communities: [pods, "65000:1:2"]}]
`)
	peer := `apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: tor}
spec: {peerIP: 10.9.0.2, asNumber: 65001, localASNumber: 64777, ttlSecurity: 1, keepOriginalNextHop: true, sourceAddress: None,
  maxRestartTime: 77s, keepaliveTime: 10s, colour: red%s}
`
	n.put("peer.yaml", fmt.Sprintf(peer, ""))
	b := startBird(t, tor, birdOptions)
	n.startSpeaker()
	n.startAgent("")
	n.learns("198.51.100.0/24", "10.9.0.2")
	for _, text := range []string{"via 10.9.0.1", "(65000,100)", "(65000, 1, 2)", "BGP.as_path: 64777"} {
		b.hears("10.244.1.0/24", text, true)
	}
	if out := b.ask("show", "protocols", "all", "n1"); !strings.Contains(out, "Restart time: 77") {
		t.Errorf("restart time: %s", out)
	}
	if r := n.route("203.0.113.0/24"); r != "" {
		t.Errorf("a route through the node's own AS is learned: %s", r)
	}
	n.put("peer.yaml", fmt.Sprintf(peer, ", numAllowedLocalASNumbers: 1"))
	n.learns("203.0.113.0/24", "10.9.0.2")

	// What weft does not have is reported.
	for _, text := range []string{"spec.colour", "spec.logSeverityScreen"} {
		eventually(t, text+" is reported", func() bool { return strings.Contains(fmt.Sprint(n.status().Problems), text) },
			func() string { return fmt.Sprint(n.status().Problems) })
	}
}
