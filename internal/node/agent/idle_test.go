// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestIdle measures an idle agent in a large cluster: WEFT_IDLE_NODES Node objects on a real API server, each with a
// heartbeat every five minutes. Then one more joins. It takes minutes and is not part of the tests;
// docs/design/performance-mesh.md has the results.
func TestIdle(t *testing.T) {
	nettest.EndToEnd(t)
	nodes, err := strconv.Atoi(os.Getenv("WEFT_IDLE_NODES"))
	if err != nil {
		t.Skip("a measurement: set WEFT_IDLE_NODES to the number of nodes")
	}
	span := time.Minute
	if n, err := strconv.Atoi(os.Getenv("WEFT_IDLE_SECONDS")); err == nil {
		span = time.Duration(n) * time.Second
	}
	k := newKubeWorld(t, 1)
	w := k.nodes[0]
	nettest.Run(t, w.node, "ip", "addr", "add", "192.168.255.1/16", "dev", "eth0") // all nodes are neighbors
	images := []fields{
		{
			"sizeBytes": 123456789, "names": []string{
				fmt.Sprintf("registry.example/team/product@sha256:%064d", 1), "registry.example/team/product:v1.2.3",
			},
		},
	}
	begin := time.Now()
	for i := 2; i <= nodes; i++ {
		k.node(i, images)
	}
	t.Logf("%d nodes after %s", nodes, time.Since(begin).Round(time.Second))
	begin = time.Now()
	w.start()
	patience := time.Now().Add(5 * time.Minute)
	for routes(t, w) < nodes-1 {
		if time.Now().After(patience) {
			t.Fatalf("%d of %d routes after 5 minutes", routes(t, w), nodes-1)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("all routes %s after the start, by %s of CPU", time.Since(begin).Round(time.Millisecond), spent(t, w))
	time.Sleep(20 * time.Second) // what the start has left
	reported := func(what string, before time.Duration, over time.Duration) {
		cpu := spent(t, w) - before
		t.Logf("%s: %s of CPU in %s, %.3f%% of one processor; resident %d KiB, at most %d KiB", what, cpu,
			over.Round(time.Second), 100*cpu.Seconds()/over.Seconds(), resident(t, w, "VmRSS"), resident(t, w, "VmHWM"))
	}
	before := spent(t, w)
	time.Sleep(span)
	reported("nothing happens", before, span)
	before, begin = spent(t, w), time.Now()
	beats := 0
	for i := 0; time.Since(begin) < span; i++ {
		if due := time.Duration(i) * 5 * time.Minute / time.Duration(nodes); time.Since(begin) < due {
			time.Sleep(due - time.Since(begin))
		}
		k.Do("PATCH", fmt.Sprintf("/api/v1/nodes/n%d/status", 2+i%(nodes-1)), fields{"status": fields{"conditions": []fields{
			{
				"type": "Ready", "status": "True", "lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339),
				"reason": "KubeletReady",
			},
		}}})
		beats++
	}
	reported(fmt.Sprintf("%d nodes say that they live", beats), before, time.Since(begin))
	before, begin = spent(t, w), time.Now()
	k.node(nodes+1, images)
	for routes(t, w) < nodes {
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(begin)
	time.Sleep(5 * time.Second)
	t.Logf("one joins: its route is there after %s, the agent used %s of CPU in the 5 s after it",
		took.Round(time.Millisecond), spent(t, w)-before)
}

// routes counts a node's mesh routes in the kernel's own list, because running ip for thousands of routes would distort
// the measurement.
func routes(t *testing.T, w *world) int {
	t.Helper()
	return strings.Count(nettest.Run(t, w.node, "ip", "route", "show", "proto", "119"), " via ")
}

// spent returns the CPU time of a world's agent so far, to ten milliseconds.
func spent(t *testing.T, w *world) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.agent.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b)[strings.LastIndex(string(b), ")")+1:])
	var ticks int
	for _, f := range fields[11:13] { // utime and stime, proc(5)
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
