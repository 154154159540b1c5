// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestPeerMetrics: an agent serves metrics of the other node, which is down when the wire is cut; with metrics.peers none
// there are none.
func TestPeerMetrics(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "encapsulation: host-gw")
	n1, n2 := p.nodes[0], p.nodes[1]
	for i, w := range p.nodes {
		w.stop()
		w.configured(fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: cluster}\nmetrics: {address: '127.0.0.1:9119', peers: %s}\n",
			w.path("net.d"), []string{"auto", "none"}[i]))
		w.start()
	}
	served := func(what string) bool { return strings.Contains(n1.web("GET /metrics HTTP/1.0"), what) }
	p.until("the other node is up", func() bool { return served(`weft_peer_up{peer="n2"} 1`) && served("weft_peers_down 0") })
	if text := n2.web("GET /metrics HTTP/1.0"); strings.Contains(text, "weft_peer") || !strings.Contains(text, "weft_ready") {
		t.Errorf("with metrics.peers none:\n%s", text)
	}
	nettest.Run(t, n2.node, "ip", "link", "set", "eth0", "down")
	p.until("the other node is down", func() bool { return served(`weft_peer_up{peer="n2"} 0`) && served("weft_peers_down 1") })
}
