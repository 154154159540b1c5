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

// Config says what Run measures.
type Config struct {
	Backends []string // host-gw, vxlan, udp
	Tests    []string // all when empty
	N        int      // rounds
	// Span is how long one test of one way takes.
	Span time.Duration
	Seed uint64
	// Guards compares weft's designs with themselves without guards, instead of with flannel's.
	Guards bool
	// Self is weft-bench, BinDir the directory of weft's plugins.
	Self, BinDir string
	// Flanneld and Etcd are programs; without them flannel's udp is left out.
	Flanneld, Etcd string
	Log            *slog.Logger
}

func (cfg Config) check() error {
	if cfg.N < 1 || cfg.Span < time.Millisecond || cfg.Span > 10*time.Second {
		return model.Faultf(model.CodeInvalidConf, "give -n 1 or more, and --span between 1ms and 10s",
			"bench: -n %d, --span %s", cfg.N, cfg.Span)
	}
	for _, b := range cfg.Backends {
		if !slices.Contains([]string{"host-gw", "vxlan", "udp"}, b) {
			return model.Faultf(model.CodeInvalidConf, "known: host-gw, vxlan, udp", "bench: back end %q is not measured", b)
		}
	}
	for _, t := range cfg.Tests {
		if !slices.Contains(Tests(), t) {
			return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("known: %q", Tests()), "bench: there is no test %q", t)
		}
	}
	return nil
}

// way is one path of packets that is measured.
type way struct {
	Where   string `json:"where"` // same node, across
	Backend string `json:"backend,omitempty"`
	Design  string `json:"design"`
	ends    *Ends
}

type bench struct {
	cfg    Config
	dir    string
	worlds []*world
	ways   []*way
	notes  []string
	random *rand.Rand
	values map[string]map[*way][]float64 // by test, a value a round
}

// Run brings all designs up and measures them.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if len(cfg.Tests) == 0 {
		cfg.Tests = Tests()
	}
	if err := cfg.check(); err != nil {
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
		for _, w := range b.ways { // neighbors are found, and programs are in memory
			if _, err := b.once(w, test, 20*time.Millisecond); err != nil {
				return Report{}, err
			}
		}
	}
	for round := range cfg.N {
		cfg.Log.Info("measuring", "round", round+1, "of", cfg.N)
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
		w.ends.Close()
	}
	for _, w := range b.worlds {
		w.close()
	}
}

// build brings the designs up. On one node all back ends are alike; what is measured there is of the first one.
func (b *bench) build(ctx context.Context) error {
	plan := []*world{{maker: "wire"}}
	for _, backend := range b.cfg.Backends {
		ptp, bridge := world{maker: "weft", backend: backend, joined: "ptp", guarded: true},
			world{maker: "weft", backend: backend, joined: "bridge", guarded: true}
		plan = append(plan, &ptp, &bridge)
		if b.cfg.Guards {
			bare, bareBridge := ptp, bridge
			bare.guarded, bareBridge.guarded = false, false
			plan = append(plan, &bare, &bareBridge)
			continue
		}
		if backend == "udp" && (b.cfg.Flanneld == "" || b.cfg.Etcd == "") {
			b.notes = append(b.notes, "flannel's udp was not measured: it needs --flanneld and --etcd")
		} else {
			plan = append(plan, &world{maker: "flannel", backend: backend})
		}
	}
	for _, w := range plan {
		b.worlds = append(b.worlds, w)
		b.cfg.Log.Info("building", "design", w.name(), "back end", w.backend)
		if err := b.up(ctx, w); err != nil {
			return fmt.Errorf("%s %s: %w", w.name(), w.backend, err)
		}
		if w.maker != "wire" && w.backend == b.cfg.Backends[0] {
			if err := b.way("same node", w, w.nodes[0].pods[0], w.nodes[0].pods[1]); err != nil {
				return err
			}
		}
		if err := b.way("across", w, w.nodes[0].pods[0], w.nodes[1].pods[0]); err != nil {
			return err
		}
	}
	return nil
}

// way starts the two ends.
func (b *bench) way(where string, w *world, from, to pod) error {
	v := &way{Where: where, Design: w.name()}
	if where == "across" {
		v.Backend = w.backend
	}
	var err error
	if v.ends, err = Join(b.cfg.Self, from.ns, to.ns, to.addr); err != nil {
		return err
	}
	b.ways = append(b.ways, v)
	return nil
}

// once takes one test of one way: what was done per second.
func (b *bench) once(w *way, test string, span time.Duration) (float64, error) {
	v, err := w.ends.Once(test, span)
	if err != nil {
		return 0, fmt.Errorf("%s, %s %s, %s: %w", w.Where, w.Design, w.Backend, test, err)
	}
	return v, nil
}
