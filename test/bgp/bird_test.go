// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// router is a router with BIRD, connected to a node.
func router(t testing.TB, n *node) *netns.NS {
	t.Helper()
	tor := nettest.NS(t, "tor")
	nettest.Run(t, tor, "ip", "link", "set", "lo", "up")
	connect(t, n.ns, "eth0", "10.9.0.1/24 fd09::1/64", tor, "eth1", "10.9.0.2/24 fd09::2/64")
	return tor
}

const birdToN1 = `
router id 10.9.0.2;
protocol static s4 { ipv4; route 203.0.113.0/24 blackhole; }
protocol bgp n1 {
  local 10.9.0.2 as 65001;
  neighbor 10.9.0.1 as 64512;
  graceful restart on;
  hold time 90;
  ipv4 { import all; export where source = RTS_STATIC; next hop self; };
}
`

const peerTor = `apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: tor}
spec: {peerIP: 10.9.0.2, asNumber: 65001}
`

// A node announces its prefix, and a route that it learns is in the kernel; the packets of each unused address end.
func TestBird(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	n.put("peer.yaml", peerTor)
	b := startBird(t, tor, birdToN1)
	n.startSpeaker()
	n.startAgent("")
	b.hears("10.244.1.0/24", "via 10.9.0.1", true)
	n.learns("203.0.113.0/24", "10.9.0.2")
	if got := n.route("203.0.113.0/24"); !strings.Contains(got, "proto 119") && !strings.Contains(got, "proto weft") {
		t.Errorf("learned route %q does not have weft's protocol", got)
	}
	eventually(t, "packets to unused addresses are rejected",
		func() bool { return strings.Contains(n.route("10.244.1.0/24"), "10.244.1.0/24") }, func() string { return n.route("table all") })

	// A withdrawn route goes.
	b.ask("disable", "s4")
	n.forgets("203.0.113.0/24")
	b.ask("enable", "s4")
	n.learns("203.0.113.0/24", "10.9.0.2")
}
