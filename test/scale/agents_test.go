// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
)

// relay forwards connections to a server, as a load balancer does, and counts them and their bytes.
type relay struct {
	url      string
	to       string
	received atomic.Int64 // bytes from the server

	mu       sync.Mutex
	attempts []time.Time // of clients
	accepted []time.Time // those that reached the server
	conns    map[net.Conn]bool
}

func newRelay(t *testing.T, s *apitest.Server) *relay {
	t.Helper()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddrPort(to.Host).Addr(), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{url: "https://" + l.Addr().String(), to: to.Host, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		for c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		running.Wait()
	})
	return r
}

func (r *relay) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	r.mu.Lock()
	r.attempts = append(r.attempts, time.Now())
	r.mu.Unlock()
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	r.mu.Lock()
	r.accepted = append(r.accepted, time.Now())
	r.conns[client], r.conns[server] = true, true
	r.mu.Unlock()
	var done sync.WaitGroup
	done.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	n, _ := io.Copy(client, server)
	r.received.Add(n)
	_ = client.Close()
	done.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
	delete(r.conns, server)
}

// since returns the times after a moment, relative to it.
func (r *relay) since(begin time.Time, times func(*relay) []time.Time) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []time.Duration
	for _, t := range times(r) {
		if t.After(begin) {
			out = append(out, t.Sub(begin))
		}
	}
	slices.Sort(out)
	return out
}

// herd is the part of an agent that talks to the API server, many times in one process.
type herd struct {
	t     *testing.T
	facts []*facts.Facts
	end   func()
}

// startHerd starts that many, each of a node of its own that has no Node object, and waits until all know the cluster.
func startHerd(t *testing.T, conf string, n int) *herd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	h := &herd{t: t, end: func() { cancel(); running.Wait() }}
	t.Cleanup(h.end)
	log := slog.New(slog.DiscardHandler)
	for i := range n {
		s, err := kube.Open(kube.Config{
			Access: kube.Access{Kubeconfig: conf, Getenv: os.Getenv}, Node: fmt.Sprintf("agent%04d", i), Pools: true,
			Agent: "weft/scale", Log: log, Now: time.Now, After: time.After,
		})
		if err != nil {
			t.Fatal(err)
		}
		f := facts.New(s, fmt.Sprintf("agent%04d", i), log, time.After)
		h.facts = append(h.facts, f)
		running.Go(func() { _ = s.Run(ctx) })
		running.Go(func() { _ = f.Run(ctx) })
	}
	for _, f := range h.facts {
		select {
		case <-f.Synced():
		case <-time.After(5 * time.Minute):
			t.Fatal("an agent does not know the cluster")
		}
	}
	return h
}

// until waits until all agents' facts are as wanted.
func (h *herd) until(what string, ok func(*model.Cluster) bool) {
	h.t.Helper()
	limit := time.Now().Add(5 * time.Minute)
	for _, f := range h.facts {
		for !ok(f.Cluster()) {
			if time.Now().After(limit) {
				h.t.Fatal("some agent does not know ", what)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// requests returns how many requests the server has completed or, of watches, begun, by kind; those of the agents only.
func requests(t *testing.T, s *apitest.Server) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(s.Do(http.MethodGet, "/metrics", nil)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(value, 64)
		resource := labelOf(labels, "resource")
		if err != nil || !slices.Contains([]string{
			"nodes", "pods", "namespaces", "network-attachment-definitions", "addresspools", "addressblocks", "",
		}, resource) || labelOf(labels, "subresource") != "" {
			continue
		}
		out[labelOf(labels, "verb")+" "+resource] += n
	}
	return out
}

func labelOf(labels, name string) string {
	_, rest, _ := strings.Cut(labels, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// TestManyAgents: agents of many nodes at one API server. Without changes they make nearly no requests; while the server
// is away each tries with one watch at a time, and comes back with one connection. WEFT_AGENTS is their number, up to
// thousands on a host with enough memory. When they come back is printed: it depends on random delays
// (TestGateSpreads in cluster/store/kube).
func TestManyAgents(t *testing.T) {
	agents, quiet := 50, 2*time.Second
	if n, err := strconv.Atoi(os.Getenv("WEFT_AGENTS")); err == nil {
		agents, quiet = n, time.Minute
	}
	c := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"), "--max-requests-inflight=2000")
	for _, pattern := range []string{"../../deploy/crds/weft.dev_*.yaml", "../../deploy/nad-crd.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c.DefineKind(text)
		}
	}
	node := func(name string, third int) fields {
		return fields{
			"apiVersion": "v1", "kind": "Node", "metadata": fields{"name": name},
			"spec": fields{"podCIDRs": []string{fmt.Sprintf("10.9.%d.0/24", third)}},
		}
	}
	for i := range 20 {
		c.Do(http.MethodPost, "/api/v1/nodes", node(fmt.Sprintf("other%d", i), i))
	}
	r := newRelay(t, c)
	h := startHerd(t, c.Kubeconfig(r.url, ""), agents)
	before := requests(t, c)
	time.Sleep(quiet)
	idle := 0.0
	for kind, n := range requests(t, c) {
		if n -= before[kind]; n > 0 {
			t.Logf("idle: %.2f %s per agent and minute", n/float64(agents)/quiet.Minutes(), kind)
			idle += n
		}
	}
	if idle > float64(agents) {
		t.Errorf("%.0f requests of %d idle agents", idle, agents)
	}
	t.Logf("%d agents, idle for %s: %.2f requests per agent and minute", agents, quiet, idle/float64(agents)/quiet.Minutes())

	c.Do(http.MethodPost, "/api/v1/nodes", node("joined", 200))
	h.until("the node that joined", func(c *model.Cluster) bool {
		return slices.ContainsFunc(c.Nodes, func(n model.Node) bool { return n.Name == "joined" })
	})
	c.Stop()
	stopped := time.Now()
	time.Sleep(8 * time.Second) // long enough for the longest delay between attempts
	tried := r.since(stopped, func(r *relay) []time.Time { return r.attempts })
	c.Restart()
	c.Do(http.MethodPost, "/api/v1/nodes", node("late", 201))
	h.until("the node that joined after the restart", func(c *model.Cluster) bool {
		return slices.ContainsFunc(c.Nodes, func(n model.Node) bool { return n.Name == "late" })
	})
	back := r.since(stopped, func(r *relay) []time.Time { return r.accepted })
	t.Logf("%d attempts of %d agents while the server was away for 8 s", len(tried), agents)
	// At first each of the six watches of an agent tries, then one of them. All share one connection when the server is
	// back; the first may end while the server is still starting.
	if len(tried) > 14*agents || len(back) < agents || len(back) > 3*agents {
		t.Errorf("%d attempts while the server was away and %d connections afterwards, want at most %d, and %d to %d", len(tried),
			len(back), 14*agents, agents, 3*agents)
	}
	const bucket = 500 * time.Millisecond
	histogram := map[time.Duration]int{}
	most := 0
	for _, at := range back {
		histogram[(at-back[0]).Truncate(bucket)]++
		most = max(most, histogram[(at-back[0]).Truncate(bucket)])
	}
	for at := time.Duration(0); at <= back[len(back)-1]-back[0]; at += bucket {
		t.Logf("%6s after the first: %4d %s", at, histogram[at], strings.Repeat("#", histogram[at]*60/len(back)))
	}
	t.Logf("at most %d of %d connections came within %s", most, len(back), bucket)
	h.end()
	t.Logf("%.1f KiB from the server per agent in all", float64(r.received.Load())/float64(agents)/1024)
}
