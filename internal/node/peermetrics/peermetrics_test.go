// SPDX-License-Identifier: Apache-2.0

package peermetrics

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel/wireguard"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/probe"
	"github.com/weft-net/weft/internal/plan/mesh"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func newPeers(t *testing.T, ns *netns.NS, all bool) (*Peers, func() string) {
	m := metrics.New("v1")
	p := New(Config{
		Namespace: ns, All: all, Topology: func() (mesh.Topology, error) { return mesh.Topology{}, nil },
		Log: slog.New(slog.DiscardHandler), After: time.After,
	}, m)
	server := &metrics.Server{Metrics: m, Log: slog.New(slog.DiscardHandler)}
	return p, func() string {
		t.Helper()
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
}

// has reports whether a metric is there, with or without labels, and its value.
func has(t *testing.T, text, metric string) (value string, is bool) {
	t.Helper()
	m := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(metric) + " (.*)$").FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// TestPath: a peer answers with its path MTU; when the path becomes narrower its metric follows, and when the peer is gone
// it is down after two packets, and up again with the first answer.
func TestPath(t *testing.T) {
	a, b := nettest.NS(t, "a"), nettest.NS(t, "b")
	nettest.Run(t, a, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.Path())
	for i, ns := range []*netns.NS{a, b} {
		nettest.Run(t, ns, "ip", "addr", "add", fmt.Sprintf("192.168.9.%d/24", i+1), "dev", "eth0")
		nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	}
	p, scrape := newPeers(t, a, false)
	peer := netip.MustParseAddr("192.168.9.2")
	p.states["b"] = &state{target: probe.Target{Name: "b", Underlay: peer, Overlay: peer, OverlayMTU: 1500, Tunnel: true}}
	p.known = 2 // and one without a path
	if _, is := has(t, scrape(), `weft_peer_up{peer="b"}`); is {
		t.Error("a peer that was not probed has a state")
	}
	visits := func(n int) {
		for range n {
			p.visit(t.Context(), "b")
		}
	}
	expect := func(when, metric, want string) {
		t.Helper()
		if got, is := has(t, scrape(), metric); got != want || is == (want == "") {
			t.Errorf("%s: %s = %q, want %q", when, metric, got, want)
		}
	}
	visits(2)
	expect("at first", `weft_peer_up{peer="b"}`, "1")
	expect("at first", `weft_peer_path_mtu_bytes{peer="b"}`, "1500")
	expect("at first", "weft_peers", "2")
	expect("at first", "weft_peers_narrow", "0")
	expect("at first", "weft_peers_down", "1")
	rtt, _ := has(t, scrape(), `weft_peer_rtt_seconds{peer="b"}`)
	for _, same := range []string{"weft_peer_rtt_worst_seconds", "weft_peer_rtt_sum_seconds"} {
		expect("with one peer", same, rtt)
	}
	if rtt == "" || rtt == "0" {
		t.Errorf("round trip time %q", rtt)
	}

	nettest.Run(t, b, "ip", "link", "set", "eth0", "mtu", "1400")
	visits(largeEvery * 14)                                          // eleven bits of sizes
	expect("narrower", `weft_peer_path_mtu_bytes{peer="b"}`, "1404") // a veth link takes the 4 bytes of a VLAN tag more
	expect("narrower", "weft_peers_narrow", "1")

	nettest.Run(t, b, "ip", "link", "set", "eth0", "down")
	if again := p.visit(t.Context(), "b"); !again {
		t.Error("a lost packet is not followed by another one")
	}
	expect("one packet was lost", `weft_peer_up{peer="b"}`, "1")
	visits(1)
	expect("two were lost", `weft_peer_up{peer="b"}`, "0")
	expect("two were lost", "weft_peers_down", "2")
	expect("two were lost", `weft_peer_rtt_seconds{peer="b"}`, "")
	nettest.Run(t, b, "ip", "link", "set", "eth0", "up")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		visits(1)
		if up, _ := has(t, scrape(), `weft_peer_up{peer="b"}`); up == "1" {
			return
		}
	}
	t.Error("the peer does not come up again")
}

// TestMany: above a hundred peers only their number, those that are down, the longest time and the sum are served, unless
// all are wanted.
func TestMany(t *testing.T) {
	for _, all := range []bool{false, true} {
		p, scrape := newPeers(t, nil, all)
		p.known = Few + 1
		for i := range Few + 1 {
			p.states[fmt.Sprint("n", i)] = &state{asked: true, up: i != 7, rtt: time.Duration(i) * time.Millisecond, passes: 1500}
		}
		text := scrape()
		if n := strings.Count(text, "weft_peer_up{"); (n == Few+1) != all || !all && n > 0 {
			t.Errorf("all %t: %d peers", all, n)
		}
		for metric, want := range map[string]string{
			"weft_peers": "101", "weft_peers_down": "1", "weft_peer_rtt_worst_seconds": "0.1",
		} {
			if got, _ := has(t, text, metric); got != want {
				t.Errorf("all %t: %s = %q, want %s", all, metric, got, want)
			}
		}
		delete(p.states, "n3")
		if n := strings.Count(scrape(), "weft_peer_up{"); !all && n != Few-1+1 {
			t.Errorf("with %d peers there are %d", len(p.states), n)
		}
	}
}

// TestTraffic: the bytes that the kernel's WireGuard devices count are summed for each peer, which has one entry for each
// of its prefixes. A peer that a device does not have yet, devices in user space, other tunnels and large clusters have
// none; neither has any peer when a device cannot be read.
func TestTraffic(t *testing.T) {
	p, scrape := newPeers(t, nil, false)
	keys := [3]wireguard.PublicKey{{1}, {2}, {3}}
	peers := []mesh.TunnelPeer{
		{Node: "b", PublicKey: keys[0].String()}, {Node: "b", PublicKey: keys[0].String()},
		{Node: "c", PublicKey: keys[1].String()}, {Node: "d", PublicKey: keys[2].String()},
	}
	p.cfg.Topology = func() (mesh.Topology, error) {
		return mesh.Topology{Tunnels: []mesh.Tunnel{
			{Backend: "wireguard", Link: "wg4", Peers: peers}, {Backend: "wireguard", Link: "wg6", Peers: peers[:1]},
			{Backend: "wireguard", Link: "tun0", Peers: peers, Options: map[string]string{mesh.OptionUserSpace: "true"}},
			{Backend: "udp", Link: "udp0", Peers: peers},
		}}, nil
	}
	devices := map[string]map[wireguard.PublicKey]wireguard.Traffic{
		"wg4": {keys[0]: {Received: 10, Sent: 20}, keys[1]: {Received: 3}, {9}: {Received: 99}},
		"wg6": {keys[0]: {Received: 1, Sent: 2}},
	}
	p.cfg.Counted = func(link string) (map[wireguard.PublicKey]wireguard.Traffic, error) {
		if d, is := devices[link]; is {
			return d, nil
		}
		return nil, fmt.Errorf("wireguard %s: %w", link, fs.ErrNotExist)
	}
	p.begin()
	text := scrape()
	for metric, want := range map[string]string{
		`weft_peer_receive_bytes_total{peer="b"}`: "11", `weft_peer_transmit_bytes_total{peer="b"}`: "22",
		`weft_peer_receive_bytes_total{peer="c"}`: "3", `weft_peer_transmit_bytes_total{peer="c"}`: "0",
		`weft_peer_receive_bytes_total{peer="d"}`: "",
	} {
		if got, _ := has(t, text, metric); got != want {
			t.Errorf("%s = %q, want %q", metric, got, want)
		}
	}
	none := func(when string) {
		t.Helper()
		if text := scrape(); strings.Contains(text, "_bytes_total{peer") || !strings.Contains(text, "weft_peers ") {
			t.Errorf("%s:\n%s", when, text)
		}
	}
	delete(devices, "wg6")
	none("a device is gone")
	devices["wg6"] = nil
	p.known = Few + 1
	none("a large cluster")
}

// BenchmarkScrape measures a scrape of an agent that has metrics for each of a thousand peers: its time, and its size as
// bytes/op would be misleading, as "size-bytes".
func BenchmarkScrape(b *testing.B) {
	for _, all := range []bool{false, true} {
		b.Run(fmt.Sprintf("all=%t", all), func(b *testing.B) {
			m := metrics.New("v1")
			p := New(Config{All: all, Log: slog.New(slog.DiscardHandler)}, m)
			p.known = 1000
			for i := range 1000 {
				p.states[fmt.Sprint("node", i)] = &state{asked: true, up: true, rtt: time.Millisecond, passes: 1450}
			}
			handler := (&metrics.Server{Metrics: m, Log: slog.New(slog.DiscardHandler)}).Handler()
			size := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
				size = w.Body.Len()
			}
			b.ReportMetric(float64(size), "size-bytes")
		})
	}
}
