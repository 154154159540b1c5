// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// change is a line of ip-monitor(8), and when it was read.
type change struct {
	at   time.Time
	text string
}

// monitor reports the changes of the kernel's routes.
func monitor(b *testing.B, ns *netns.NS) <-chan change {
	b.Helper()
	cmd := exec.Command("ip", "monitor", "route")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = ns.Do(cmd.Start)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	changes := make(chan change, 10_000)
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			changes <- change{time.Now(), in.Text()}
		}
	}()
	return changes
}

// after returns how long after a moment a change with a prefix is reported.
func after(b *testing.B, from time.Time, changes <-chan change, prefix string) time.Duration {
	b.Helper()
	late := time.After(patience)
	for {
		select {
		case c := <-changes:
			if strings.HasPrefix(c.text, prefix) && c.at.After(from) {
				return c.at.Sub(from)
			}
		case <-late:
			b.Fatalf("%q: not after %s", prefix, patience)
		}
	}
}

// quantiles reports the median and the 95th percentile of durations.
func quantiles(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50-ms", 0.5}, {"p95-ms", 0.95}, {"max-ms", 1}} {
		i := min(int(q.of*float64(len(all))), len(all)-1)
		b.ReportMetric(float64(all[i].Microseconds())/1000, q.name)
	}
}

// BenchmarkConvergence measures how long it takes until a kernel's routes have followed: the node's after its router has
// closed the session, and after a link without addresses has failed at its other end; and the router's after the node got
// another podCIDR. BIRD is the router.
func BenchmarkConvergence(b *testing.B) {
	b.Run("session", func(b *testing.B) {
		n := newNode(b, "n1")
		tor := router(b, n)
		n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
		n.put("peer.yaml", peerTor)
		r := startBird(b, tor, birdToN1)
		n.startSpeaker()
		n.startAgent("")
		changes := monitor(b, n.ns)
		var all []time.Duration
		for b.Loop() {
			n.learns("203.0.113.0/24", "10.9.0.2")
			start := time.Now()
			r.ask("disable", "n1")
			all = append(all, after(b, start, changes, "Deleted 203.0.113.0/24 "))
			r.ask("enable", "n1")
		}
		quantiles(b, all)
	})
	b.Run("link", func(b *testing.B) {
		n, routers := unnumbered(b)
		n.put("peers.yaml", unnumberedPeer("eth2", ""))
		startBird(b, routers[1], unnumberedBIRD)
		n.startSpeaker()
		n.startAgent("")
		changes := monitor(b, n.ns)
		var all []time.Duration
		for b.Loop() {
			n.learns("203.0.113.0/24", "inet6 fe80:")
			time.Sleep(rand.N(time.Second)) // links are looked at periodically: the phase must not always be the same
			start := time.Now()
			nettest.Run(b, routers[1], "ip", "link", "set", "n1", "down")
			all = append(all, after(b, start, changes, "Deleted 203.0.113.0/24 "))
			nettest.Run(b, routers[1], "ip", "link", "set", "n1", "up")
		}
		quantiles(b, all)
	})
	b.Run("announce", func(b *testing.B) {
		n := newNode(b, "n1")
		tor := router(b, n)
		node := func(i int) string {
			return nodeManifest("n1", "", []string{fmt.Sprintf("10.244.%d.0/24", i)}, []string{"10.9.0.1"})
		}
		n.put("node.yaml", node(0))
		n.put("peer.yaml", peerTor)
		r := startBird(b, tor, birdToN1+"protocol kernel { ipv4 { export where source = RTS_BGP; }; }\n")
		n.startSpeaker()
		n.startAgent("")
		changes := monitor(b, tor)
		r.hears("10.244.0.0/24", "via 10.9.0.1", true)
		var all []time.Duration
		for i := 1; b.Loop(); i++ {
			start := time.Now()
			n.put("node.yaml", node(i%200))
			all = append(all, after(b, start, changes, fmt.Sprintf("10.244.%d.0/24 ", i%200)))
		}
		quantiles(b, all)
	})
}
