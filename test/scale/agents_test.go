// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"errors"
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
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
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
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil: // too many open files, for a moment
				time.Sleep(10 * time.Millisecond)
				continue
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
	_, _ = io.Copy(counting{client, &r.received}, server)
	_ = client.Close()
	done.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
	delete(r.conns, server)
}

// counting adds what is written.
type counting struct {
	io.Writer
	n *atomic.Int64
}

func (c counting) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
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

// simulated is the part of an agent that talks to the API server: its store with the watches of facts, on connections
// of its own. Instead of facts, which are megabytes for thousands of nodes, it keeps how many nodes it knows
// and the last one.
type simulated struct {
	synced, nodes atomic.Int64
	last          atomic.Pointer[string] // the name of the node that was added last
}

// follow counts events until the watch ends.
func (a *simulated) follow(events <-chan store.Event) {
	for e := range events {
		switch {
		case e.Type == store.Synced:
			a.synced.Store(1)
		case !e.Object.Key.Of(store.Nodes()):
		case e.Type == store.Added:
			a.last.Store(&e.Object.Key.Name)
			a.nodes.Add(1)
		case e.Type == store.Deleted:
			a.nodes.Add(-1)
		}
	}
}

// herd is many agents in this process.
type herd struct {
	t      *testing.T
	agents []*simulated
	end    func()
}

const userAgent = "weft/scale"

func agentName(i int) string { return fmt.Sprintf("agent%05d", i) }

// startHerd starts that many, each of a node of its own, and waits until all know the cluster.
func startHerd(t *testing.T, conf string, n int) *herd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	h := &herd{t: t, end: func() { cancel(); running.Wait() }}
	t.Cleanup(h.end)
	begin, shared := time.Now(), kube.NewShared() // each would have all objects
	for i := range n {
		if i >= starting {
			h.awaitAgent(i-starting, "the cluster", func(a *simulated) bool { return a.synced.Load() > 0 })
		}
		s, err := kube.Open(kube.Config{
			Access: kube.Access{Kubeconfig: conf, Getenv: os.Getenv}, Node: agentName(i), Pools: true, Shared: shared,
			Agent: userAgent, Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
		})
		if err != nil {
			t.Fatal(err)
		}
		events, err := s.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		a := &simulated{}
		h.agents = append(h.agents, a)
		running.Go(func() { _ = s.Run(ctx) })
		running.Go(func() { a.follow(events) })
		time.Sleep(time.Until(begin.Add(time.Duration(i) * startPace))) // as a rollout, not all at once
	}
	h.until("the cluster", func(a *simulated) bool { return a.synced.Load() > 0 && a.nodes.Load() >= int64(n) })
	t.Logf("%d agents know the cluster %s after the first one's start", n, time.Since(begin).Round(time.Second))
	return h
}

// starting is how many agents may start at a time: each begins with a connection for each of its watches, of which one
// stays, and the relay has two ends of each.
const starting = 200

// startPace is the time between the starts of two agents, patience how long one may take to learn something.
const startPace, patience = 5 * time.Millisecond, time.Hour

// until waits until all agents know something.
func (h *herd) until(what string, ok func(*simulated) bool) {
	h.t.Helper()
	for i := range h.agents {
		h.awaitAgent(i, what, ok)
	}
}

// awaitAgent waits until one agent knows something.
func (h *herd) awaitAgent(i int, what string, ok func(*simulated) bool) {
	h.t.Helper()
	for limit := time.Now().Add(patience); !ok(h.agents[i]); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			h.t.Fatalf("agent %d does not know %s", i, what)
		}
	}
}

// learn creates a node and waits until all agents know it.
func (h *herd) learn(c *apitest.Server, name string, third int) {
	h.t.Helper()
	c.Do(http.MethodPost, "/api/v1/nodes", nodeObject(name, third))
	h.until("node "+name, func(a *simulated) bool { last := a.last.Load(); return last != nil && *last == name })
}

// nodeObject is a Node with the parts of one that the kubelet and weft write.
func nodeObject(name string, i int) fields {
	return fields{
		"apiVersion": "v1", "kind": "Node",
		"metadata": fields{
			"name": name, "uid": "uid-" + name, "creationTimestamp": made, "labels": fields{"kubernetes.io/hostname": name},
		},
		"spec": fields{"podCIDRs": []string{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)}},
		"status": fields{"addresses": []fields{
			{"type": "InternalIP", "address": fmt.Sprintf("172.16.%d.%d", i>>8, i&255)},
		}},
	}
}

// TestManyAgents: agents of many nodes at one API server. Without changes they make nearly no requests; while the server
// is away each tries with one watch at a time, and when it is back after a SIGKILL they do not all come at once.
// WEFT_AGENTS is their number, up to thousands on a host with enough memory, and WEFT_QUIET the time for which they are
// observed without changes: their watches end by themselves after five to ten minutes.
func TestManyAgents(t *testing.T) {
	agents, quiet := 50, 2*time.Second
	if n, err := strconv.Atoi(os.Getenv("WEFT_AGENTS")); err == nil {
		agents, quiet = n, time.Minute
	}
	if d, err := time.ParseDuration(os.Getenv("WEFT_QUIET")); err == nil {
		quiet = d
	}
	audit := newAudit(t)
	c := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"), audit.args()...)
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
	c.BulkPut(func(yield func(string, any) bool) {
		for i := range agents {
			if !yield("minions/"+agentName(i), nodeObject(agentName(i), i)) {
				return
			}
		}
		pooled(agents, yield)
	})
	controllerResident(t, c, min(20*time.Second, quiet))
	r := newRelay(t, c)
	per := func(n int64) float64 { return float64(n) / float64(agents) }
	var server, own time.Duration
	// spent prints where the processor time since the last call went.
	spent := func(what string) {
		is, our := cpuTime(t, c.PID()), cpuTime(t, os.Getpid())
		t.Logf("%s: %s of processor time in the API server, %s in the agents and the relay: %.1f and %.1f µs for each agent and object",
			what, (is - server).Round(time.Millisecond), (our - own).Round(time.Millisecond),
			per((is-server).Microseconds())/2/float64(agents), per((our-own).Microseconds())/2/float64(agents))
		server, own = is, our
	}
	spent("preparation")
	h := startHerd(t, c.Kubeconfig(r.url, ""), agents)
	spent("start")
	t.Logf("%.1f KiB from the server per agent until then", per(r.received.Load())/1024)

	began, received := time.Now(), r.received.Load()
	time.Sleep(quiet)
	idle := 0
	asked, _ := audit.since(t, began)
	for kind, n := range asked.byKind() {
		t.Logf("idle: %.2f %s per agent and minute", per(int64(n))/quiet.Minutes(), kind)
		idle += n
	}
	if float64(idle) > float64(agents)*max(1, 2*quiet.Minutes()) {
		t.Errorf("%d requests of %d idle agents in %s", idle, agents, quiet)
	}
	t.Logf("%d agents, idle for %s: %.2f requests and %.0f bytes from the server per agent and minute", agents, quiet,
		per(int64(idle))/quiet.Minutes(), per(r.received.Load()-received)/quiet.Minutes())
	t.Logf("resident: API server %.0f MiB, these agents %.0f MiB", mib(resident(t, c.PID())), mib(resident(t, os.Getpid())))

	spent("idle")
	received = r.received.Load()
	began = time.Now()
	const changes = 5
	for i := range changes {
		h.learn(c, fmt.Sprint("joined", i), agents+i)
	}
	t.Logf("a node that joins: %.0f bytes from the server per agent; all know it after %s (mean of %d)",
		per(r.received.Load()-received)/changes, (time.Since(began) / changes).Round(time.Millisecond), changes)

	spent("joins")
	c.Stop()
	stopped := time.Now()
	time.Sleep(8 * time.Second) // long enough for the longest delay between attempts of few agents
	tried := r.since(stopped, func(r *relay) []time.Time { return r.attempts })
	c.Restart()
	t.Logf("the server is ready again %s after the SIGKILL", time.Since(stopped).Round(time.Second))
	h.learn(c, "late", agents+changes)
	t.Logf("all agents know a node that joined then %s after the SIGKILL", time.Since(stopped).Round(time.Second))
	t.Logf("resident: API server %.0f MiB, these agents %.0f MiB", mib(resident(t, c.PID())), mib(resident(t, os.Getpid())))
	server = 0 // another process
	spent("restart")
	back := r.since(stopped, func(r *relay) []time.Time { return r.accepted })
	t.Logf("%d attempts of %d agents while the server was away for 8 s", len(tried), agents)
	// At first each of the six watches of an agent tries, then one of them. All share one connection when the server is
	// back; the first may end while the server is still starting.
	if len(tried) > 14*agents || len(back) < agents || len(back) > 3*agents {
		t.Errorf("%d attempts while the server was away and %d connections afterwards, want at most %d, and %d to %d", len(tried),
			len(back), 14*agents, agents, 3*agents)
	}
	if most := histogram(t, "connections", back, agents); 4*most > 3*agents {
		t.Errorf("%d of %d agents came back within a second", most, agents)
	}
	seen, refused := audit.since(t, stopped)
	t.Logf("answered by errors: %v", refused)
	for kind, n := range seen.byKind() {
		t.Logf("after the restart: %.2f %s per agent", per(int64(n)), kind)
	}
	lists, watches := seen.times(true), seen.times(false)
	histogram(t, "watches that continue", watches, 6*agents)
	if len(watches) < 3*agents {
		t.Errorf("%d of %d watches tried to continue where they had ended", len(watches), 6*agents)
	}
	most := histogram(t, "lists and watches that begin with all objects", lists, agents)
	if 20*most > 19*len(lists) {
		t.Errorf("%d of %d lists of %d agents came within a second", most, len(lists), agents)
	}
	h.end()
}

// histogram prints how many there are in each second after the first, for a minute, and returns the most.
func histogram(t *testing.T, what string, all []time.Duration, agents int) (most int) {
	t.Helper()
	if len(all) == 0 {
		t.Logf("no %s", what)
		return 0
	}
	in := map[time.Duration]int{}
	for _, at := range all {
		in[(at-all[0]).Truncate(time.Second)]++
	}
	for _, n := range in {
		most = max(most, n)
	}
	for at := time.Duration(0); at <= min(time.Minute, all[len(all)-1]-all[0]); at += time.Second {
		t.Logf("%4s after the first: %5d %s", at, in[at], strings.Repeat("#", in[at]*60/most))
	}
	t.Logf("%d %s, the first %s after the SIGKILL; at most %d came within a second, %.1f %% of %d", len(all), what,
		all[0].Round(100*time.Millisecond), most, 100*float64(most)/float64(agents), agents)
	return most
}
