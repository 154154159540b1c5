// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// MeshConfig says what Mesh measures.
type MeshConfig struct {
	Peers    []int    // of the node
	Backends []string // host-gw, vxlan
	N        int      // samples
	// Changes is at how many peers one join, one leave and one new MAC address are measured; 0 leaves them out.
	Changes int
	// Listed is up to how many peers host-gw is also measured as flannel makes it, with lists before each route: their
	// time grows with the square.
	Listed int
	// OnlyWeft leaves the others out.
	OnlyWeft bool
	Seed     uint64
	Log      *slog.Logger
}

// The ways in which a mesh is brought up.
const (
	wayWeft   = "weft"
	waySingle = "one by one"
	wayListed = "list, then add"
)

// mostPeers is what the addresses of the bench are enough for.
const mostPeers = 60000

func (cfg MeshConfig) check() error {
	if cfg.N < 1 || len(cfg.Peers) == 0 || len(cfg.Backends) == 0 {
		return model.Faultf(model.CodeInvalidConf, "give -n 1 or more, one number of peers and one back end",
			"bench: -n %d, %d numbers of peers, %d back ends",
			cfg.N, len(cfg.Peers), len(cfg.Backends))
	}
	for _, n := range append([]int{cfg.Changes}, cfg.Peers...) {
		if n < 0 || n > mostPeers {
			return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("give 0 to %d", mostPeers), "bench: %d peers", n)
		}
	}
	for _, b := range cfg.Backends {
		if b != backendHostGW && b != backendVxlan {
			return model.Faultf(model.CodeInvalidConf, "known: host-gw, vxlan", "bench: back end %q is not measured", b)
		}
	}
	return nil
}

// Mesh measures what it takes a node to reach its peers: from what is known of the cluster to the last route, by weft
// and by one request after the other, as flannel does it. Each sample has a namespace of its own; the ways take turns.
func Mesh(ctx context.Context, cfg MeshConfig) (MeshReport, error) {
	if err := cfg.check(); err != nil {
		return MeshReport{}, err
	}
	m := &meshBench{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), values: map[meshKey][]float64{}}
	for _, backend := range cfg.Backends {
		for _, peers := range slices.Sorted(slices.Values(cfg.Peers)) {
			cfg.Log.Info("measuring", "back end", backend, "peers", peers, "n", cfg.N)
			if err := m.up(ctx, backend, peers); err != nil {
				return MeshReport{}, fmt.Errorf("%s, %d peers: %w", backend, peers, err)
			}
		}
		if cfg.Changes > 0 {
			cfg.Log.Info("measuring changes", "back end", backend, "peers", cfg.Changes, "n", cfg.N)
			if err := m.changes(ctx, backend, cfg.Changes); err != nil {
				return MeshReport{}, fmt.Errorf("%s, changes at %d peers: %w", backend, cfg.Changes, err)
			}
		}
	}
	return m.report(), nil
}

type meshBench struct {
	cfg    MeshConfig
	random *rand.Rand
	values map[meshKey][]float64
}

func (m *meshBench) add(k meshKey, metric, unit string, v float64) {
	k.Metric, k.Unit = metric, unit
	m.values[k] = append(m.values[k], v)
}

// ways are the ways in which a back end is brought up.
func (m *meshBench) ways(backend string, peers int) []string {
	if m.cfg.OnlyWeft {
		return []string{wayWeft}
	}
	ways := []string{wayWeft, waySingle}
	if backend == backendHostGW && peers <= m.cfg.Listed {
		ways = append(ways, wayListed)
	}
	return ways
}

// up brings all peers up.
func (m *meshBench) up(ctx context.Context, backend string, peers int) error {
	ways := m.ways(backend, peers)
	for range m.cfg.N {
		for _, i := range m.random.Perm(len(ways)) {
			if err := m.sample(ctx, meshKey{Backend: backend, Peers: peers, Op: "up", Way: ways[i]}); err != nil {
				return fmt.Errorf("%s: %w", ways[i], err)
			}
		}
	}
	return nil
}

// sample brings a mesh up once, in a namespace of its own.
func (m *meshBench) sample(ctx context.Context, k meshKey) error {
	w, err := newMeshNode(k.Backend, k.Way)
	if err != nil {
		return err
	}
	defer w.close()
	c := w.cluster(k.Peers)
	before := memoryNow()
	took, err := w.hand.pass(ctx, c)
	if err != nil {
		return err
	}
	after := memoryNow()
	m.add(k, "time", "ms", float64(took)/millis)
	m.add(k, "messages", "", float64(w.hand.messages()))
	m.add(k, "allocated", "MiB", float64(after.TotalAlloc-before.TotalAlloc)/(1<<20))
	m.add(k, "kept", "MiB", max(0, float64(after.HeapAlloc)-float64(before.HeapAlloc))/(1<<20))
	if have, err := w.reached(); err != nil || have != k.Peers {
		return fmt.Errorf("%d of %d peers have routes: %w", have, k.Peers, err)
	}
	runtime.KeepAlive(c)
	return nil
}

// memoryNow is the heap after all that is not needed has gone.
func memoryNow() runtime.MemStats {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s
}

// changes lets one more peer join and leave, and where the back end has MAC addresses change its own.
func (m *meshBench) changes(ctx context.Context, backend string, peers int) error {
	ways := m.ways(backend, max(peers, m.cfg.Listed+1))
	nodes := map[string]*meshNode{}
	defer func() {
		for _, w := range nodes {
			w.close()
		}
	}()
	for _, way := range ways {
		w, err := newMeshNode(backend, way)
		if err != nil {
			return err
		}
		nodes[way] = w
		if _, err := w.hand.pass(ctx, w.cluster(peers)); err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	for range m.cfg.N {
		for _, i := range m.random.Perm(len(ways)) {
			if err := m.oneChange(ctx, meshKey{Backend: backend, Peers: peers, Way: ways[i]}, nodes[ways[i]]); err != nil {
				return fmt.Errorf("%s: %w", ways[i], err)
			}
		}
	}
	return nil
}

func (m *meshBench) oneChange(ctx context.Context, k meshKey, w *meshNode) error {
	less, more := w.cluster(k.Peers), w.cluster(k.Peers+1)
	steps := []struct {
		op string
		to *model.Cluster
	}{{"join", more}, {"leave", less}}
	if k.Backend == backendVxlan {
		steps = slices.Insert(steps, 1, struct {
			op string
			to *model.Cluster
		}{"new MAC", w.cluster(k.Peers + 1)})
		w.renew(steps[1].to)
	}
	for _, s := range steps {
		runtime.GC()
		before := w.hand.messages()
		took, err := w.hand.pass(ctx, s.to)
		if err != nil {
			return fmt.Errorf("%s: %w", s.op, err)
		}
		k.Op = s.op
		m.add(k, "time", "ms", float64(took)/millis)
		m.add(k, "messages", "", float64(w.hand.messages()-before))
	}
	return nil
}
