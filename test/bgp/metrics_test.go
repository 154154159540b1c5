// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// metrics returns the agent's metrics of BGP.
func (n *node) metrics() string {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, addr string) (c net.Conn, err error) {
		err = n.ns.Do(func() (err error) {
			c, err = net.Dial(network, addr)
			return err
		})
		return c, err
	}}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://127.0.0.1:9119/metrics")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "weft_bgp_") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// The agent's metrics have the state of each session and its numbers of routes, and count the sessions that are lost.
func TestMetrics(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	n.put("peer.yaml", peerTor)
	b := startBird(t, tor, birdToN1+"protocol static bad { ipv4; route 10.244.1.7/32 blackhole; }\n")
	n.startSpeaker()
	n.startAgent("metrics: {address: 127.0.0.1:9119}\n")
	wait := func(lines ...string) {
		t.Helper()
		eventually(t, "metrics are "+strings.Join(lines, ", "), func() bool {
			text := n.metrics()
			for _, l := range lines {
				if !strings.Contains(text, l+"\n") {
					return false
				}
			}
			return true
		}, n.metrics)
	}
	const peer = `{peer="10.9.0.2"} `
	wait("weft_bgp_running 1", "weft_bgp_session_up"+peer+"1", "weft_bgp_sessions_lost_total"+peer+"0",
		"weft_bgp_routes_received"+peer+"2", "weft_bgp_routes_accepted"+peer+"1", "weft_bgp_routes_advertised"+peer+"1")
	b.ask("disable", "n1")
	wait("weft_bgp_session_up"+peer+"0", "weft_bgp_sessions_lost_total"+peer+"1")
	b.ask("enable", "n1")
	wait("weft_bgp_session_up"+peer+"1", "weft_bgp_routes_accepted"+peer+"1")
	n.speaker.kill()
	wait("weft_bgp_running 0", "weft_bgp_session_up"+peer+"0")
}
