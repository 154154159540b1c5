// SPDX-License-Identifier: Apache-2.0

package path

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Config configures Run.
type Config struct {
	Backends []string // host-gw, vxlan, udp
	Tests    []string // all when empty
	N        int      // rounds
	// Span is the duration of one test of one way.
	Span time.Duration
	Seed uint64
	// Guards compares weft's designs with and without source guards, instead of with flannel's design.
	Guards bool
	// FastPath compares weft's routed design with and without the fast path of established flows, and with flannel's.
	FastPath bool
	// Policies also measures weft's routed designs with so many NetworkPolicies that select the pods; 0: without only.
	Policies int
	// Unfiltered also measures weft's routed designs without any rule or connection tracking on the nodes.
	Unfiltered bool
	// Self is the program weft-bench, BinDir the directory of weft's plugins.
	Self, BinDir string
	// Flanneld and Etcd are programs; without them flannel's udp is skipped.
	Flanneld, Etcd string
	Log            *slog.Logger
}

// maxPolicies is limited by the range of addresses of the peers that they allow.
const maxPolicies = 1 << 18 / peersOfPolicy

// Check validates the configuration.
func (cfg Config) Check() error {
	if cfg.N < 1 {
		return model.OutOfRange("-n", cfg.N, "1 or more", 7)
	}
	if cfg.Guards && cfg.FastPath {
		return model.Errorf(model.CodeInvalidConf, "leave one out", "--guards and --fast-path are two comparisons")
	}
	if cfg.Policies < 0 || cfg.Policies > maxPolicies {
		return model.OutOfRange("--policies", cfg.Policies, fmt.Sprintf("0 to %d", maxPolicies), 1000)
	}
	if cfg.Guards && (cfg.Policies > 0 || cfg.Unfiltered) {
		return model.Errorf(model.CodeInvalidConf, "leave --guards out",
			"--guards compares designs without policies: --policies and --unfiltered have no effect with it")
	}
	if cfg.Span < time.Millisecond || cfg.Span > 10*time.Second {
		return model.OutOfRange("--span", cfg.Span, "1ms to 10s", "300ms")
	}
	for _, b := range cfg.Backends {
		if known := []string{"host-gw", "vxlan", "udp"}; !slices.Contains(known, b) {
			return model.NotOneOf("--backends", b, known...)
		}
	}
	for _, t := range cfg.Tests {
		if !slices.Contains(Tests(), t) {
			return model.NotOneOf("--tests", t, Tests()...)
		}
	}
	return nil
}

// way is one measured path between two pods.
type way struct {
	Where   string `json:"where"` // same node, across
	Backend string `json:"backend,omitempty"`
	Design  string `json:"design"`
	pair    *Pair
}

type bench struct {
	cfg    Config
	dir    string
	worlds []*world
	ways   []*way
	notes  []string
	random *rand.Rand
	values map[string]map[*way][]float64 // by test, one value per round
}

// Run creates all designs and measures them.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if len(cfg.Tests) == 0 {
		cfg.Tests = Tests()
	}
	if err := cfg.Check(); err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{cfg: cfg, dir: dir, random: rand.New(rand.NewPCG(cfg.Seed, 0)), values: map[string]map[*way][]float64{}}
	defer b.close()
	if err := b.build(ctx); err != nil {
		return Report{}, err
	}
	for _, test := range cfg.Tests {
		b.values[test] = map[*way][]float64{}
		for _, w := range b.ways { // warm up neighbor caches and programs
			if _, err := b.once(w, test, 20*time.Millisecond); err != nil {
				return Report{}, err
			}
		}
	}
	for round := range cfg.N {
		cfg.Log.Info("measuring traffic", "round", round+1, "of", cfg.N)
		for _, test := range cfg.Tests {
			for _, i := range b.random.Perm(len(b.ways)) {
				if err := ctx.Err(); err != nil {
					return Report{}, err
				}
				v, err := b.once(b.ways[i], test, cfg.Span)
				if err != nil {
					return Report{}, err
				}
				b.values[test][b.ways[i]] = append(b.values[test][b.ways[i]], v)
			}
		}
	}
	return b.report(), nil
}

func (b *bench) close() {
	for _, w := range b.ways {
		w.pair.Close()
	}
	for _, w := range b.worlds {
		w.close()
	}
}

// build creates the designs. Traffic within a node does not depend on the backend and is measured with the first one.
func (b *bench) build(ctx context.Context) error {
	plan := []*world{{impl: "wire"}}
	for _, backend := range b.cfg.Backends {
		ptp, bridge := world{impl: "weft", backend: backend, plugin: "ptp", guarded: true},
			world{impl: "weft", backend: backend, plugin: "bridge", guarded: true}
		fast := ptp
		fast.fast = true
		routed := []*world{&ptp}
		if b.cfg.FastPath {
			routed = append(routed, &fast)
		} else {
			plan = append(plan, &bridge)
		}
		plan = append(plan, routed...)
		for _, base := range routed {
			if b.cfg.Policies > 0 {
				w := *base
				w.policies = b.cfg.Policies
				plan = append(plan, &w)
			}
			if b.cfg.Unfiltered {
				w := *base
				w.unfiltered = true
				plan = append(plan, &w)
			}
		}
		if b.cfg.Guards {
			bare, bareBridge := ptp, bridge
			bare.guarded, bareBridge.guarded = false, false
			plan = append(plan, &bare, &bareBridge)
			continue
		}
		if backend == "udp" && (b.cfg.Flanneld == "" || b.cfg.Etcd == "") {
			b.notes = append(b.notes, "flannel's udp was not measured: it needs --flanneld and --etcd")
		} else {
			plan = append(plan, &world{impl: "flannel", backend: backend})
		}
	}
	for _, w := range plan {
		b.worlds = append(b.worlds, w)
		b.cfg.Log.Info("creating a design", "design", w.name(), "backend", w.backend)
		if err := b.setUp(ctx, w); err != nil {
			return fmt.Errorf("%s %s: %w", w.name(), w.backend, err)
		}
		if w.impl != "wire" && w.backend == b.cfg.Backends[0] {
			if err := b.addWay("same node", w, w.nodes[0].pods[0], w.nodes[0].pods[1]); err != nil {
				return err
			}
		}
		if err := b.addWay("across", w, w.nodes[0].pods[0], w.nodes[1].pods[0]); err != nil {
			return err
		}
	}
	return nil
}

// addWay starts the client and the server of a way.
func (b *bench) addWay(where string, w *world, from, to pod) error {
	v := &way{Where: where, Design: w.name()}
	if where == "across" {
		v.Backend = w.backend
	}
	var err error
	if v.pair, err = StartPair(b.cfg.Self, from.ns, to.ns, to.addr); err != nil {
		return err
	}
	b.ways = append(b.ways, v)
	return nil
}

// once runs one test of one way and returns its rate per second.
func (b *bench) once(w *way, test string, span time.Duration) (float64, error) {
	v, err := w.pair.Once(test, span)
	if err != nil {
		return 0, fmt.Errorf("%s, %s %s, %s: %w", w.Where, w.Design, w.Backend, test, err)
	}
	return v, nil
}
