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

// MeshConfig configures Mesh.
type MeshConfig struct {
	Peers    []int    // numbers of peers
	Backends []string // host-gw, vxlan
	N        int      // samples
	// Changes is the number of peers at which one join, one leave and one new MAC address are measured; 0 skips them.
	Changes int
	// Listed is the maximum number of peers at which host-gw is also measured as flannel implements it, with route lists
	// before each addition: their time is quadratic.
	Listed int
	// OnlyWeft skips the other ways.
	OnlyWeft bool
	Seed     uint64
	Log      *slog.Logger
}

// The ways to apply a mesh; they are values of the report.
const (
	wayWeft       = "weft"
	waySequential = "one by one"
	wayListed     = "list, then add"
)

// maxPeers is limited by the addresses that the benchmark uses.
const maxPeers = 60000

// Check validates the configuration.
func (cfg MeshConfig) Check() error {
	switch {
	case cfg.N < 1:
		return model.OutOfRange("-n", cfg.N, "1 or more", 5)
	case len(cfg.Peers) == 0:
		return model.Errorf(model.CodeInvalidConf, "for example --peers 100,1000", "--peers has no value")
	case len(cfg.Backends) == 0:
		return model.Errorf(model.CodeInvalidConf, "for example --backends vxlan", "--backends has no value")
	}
	for _, f := range []struct {
		flag   string
		counts []int
	}{{"--changes", []int{cfg.Changes}}, {"--peers", cfg.Peers}} {
		for _, n := range f.counts {
			if n < 0 || n > maxPeers {
				return model.OutOfRange(f.flag, n, fmt.Sprintf("0 to %d", maxPeers), 1000)
			}
		}
	}
	for _, b := range cfg.Backends {
		if b != backendHostGW && b != backendVXLAN {
			return model.NotOneOf("--backends", b, backendHostGW, backendVXLAN)
		}
	}
	return nil
}

// Mesh measures how long a node takes to program its peers, from the cluster's state to the last route: by weft, and by
// sequential requests as flannel sends them. Each sample has its own namespace; the ways are interleaved.
func Mesh(ctx context.Context, cfg MeshConfig) (MeshReport, error) {
	if err := cfg.Check(); err != nil {
		return MeshReport{}, err
	}
	m := &meshBench{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), values: map[meshKey][]float64{}}
	for _, backend := range cfg.Backends {
		for _, peers := range slices.Sorted(slices.Values(cfg.Peers)) {
			cfg.Log.Info("measuring a new mesh", "backend", backend, "peers", peers, "n", cfg.N)
			if err := m.up(ctx, backend, peers); err != nil {
				return MeshReport{}, fmt.Errorf("%s, %d peers: %w", backend, peers, err)
			}
		}
		if cfg.Changes > 0 {
			cfg.Log.Info("measuring changes", "backend", backend, "peers", cfg.Changes, "n", cfg.N)
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

// ways returns the ways to measure for a backend.
func (m *meshBench) ways(backend string, peers int) []string {
	if m.cfg.OnlyWeft {
		return []string{wayWeft}
	}
	ways := []string{wayWeft, waySequential}
	if backend == backendHostGW && peers <= m.cfg.Listed {
		ways = append(ways, wayListed)
	}
	return ways
}

// up measures a mesh from scratch.
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

// sample applies a mesh once, in a new namespace.
func (m *meshBench) sample(ctx context.Context, k meshKey) error {
	w, err := newMeshNode(k.Backend, k.Way)
	if err != nil {
		return err
	}
	defer w.close()
	c := w.cluster(k.Peers)
	before := heapStats()
	took, err := w.applier.apply(ctx, c)
	if err != nil {
		return err
	}
	after := heapStats()
	m.add(k, "time", "ms", float64(took)/millis)
	m.add(k, "messages", "", float64(w.applier.messages()))
	m.addNft(k, w, 0)
	m.add(k, "allocated", "MiB", float64(after.TotalAlloc-before.TotalAlloc)/(1<<20))
	m.add(k, "kept", "MiB", max(0, float64(after.HeapAlloc)-float64(before.HeapAlloc))/(1<<20))
	if have, err := w.peerRoutes(); err != nil || have != k.Peers {
		return fmt.Errorf("%d of %d peers have routes: %w", have, k.Peers, err)
	}
	runtime.KeepAlive(c)
	return nil
}

// addNft adds how much weft has exchanged with nft since before; the other ways do not use it.
func (m *meshBench) addNft(k meshKey, w *meshNode, before int64) {
	if w.conn != nil {
		m.add(k, "nft", "KiB", float64(w.nftBytes()-before)/(1<<10))
	}
}

// heapStats returns memory statistics after a garbage collection.
func heapStats() runtime.MemStats {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s
}

// changes measures one peer that joins, changes its MAC address if the backend has any, and leaves.
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
		if _, err := w.applier.apply(ctx, w.cluster(peers)); err != nil {
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
	if k.Backend == backendVXLAN {
		steps = slices.Insert(steps, 1, struct {
			op string
			to *model.Cluster
		}{"new MAC", w.cluster(k.Peers + 1)})
		w.changeLastMAC(steps[1].to)
	}
	for _, s := range steps {
		runtime.GC()
		before, bytes := w.applier.messages(), w.nftBytes()
		took, err := w.applier.apply(ctx, s.to)
		if err != nil {
			return fmt.Errorf("%s: %w", s.op, err)
		}
		k.Op = s.op
		m.add(k, "time", "ms", float64(took)/millis)
		m.add(k, "messages", "", float64(w.applier.messages()-before))
		m.addNft(k, w, bytes)
	}
	return nil
}
