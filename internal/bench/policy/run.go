// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/bench/baseline"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/model"
)

// Config configures Run.
type Config struct {
	Engines  []string // all when empty
	Policies []int
	Peers    []int
	Tests    []string // of bench/path; connect and tcp rr when empty
	N        int      // rounds
	// Span is the duration of one test of one world.
	Span time.Duration
	// Program is the number of entries to program; 0 skips that.
	Program int
	Seed    uint64
	// Self is the program weft-bench.
	Self string
	Log  *slog.Logger
}

// maxPeers is limited by the peers' address range.
const maxPeers = 1 << 19

// Check validates the configuration and sets defaults.
func (cfg *Config) Check() error {
	if cfg.N < 1 {
		return model.OutOfRange("-n", cfg.N, "1 or more", 7)
	}
	if cfg.Span < time.Millisecond || cfg.Span > 10*time.Second {
		return model.OutOfRange("--span", cfg.Span, "1ms to 10s", "150ms")
	}
	if len(cfg.Engines) == 0 {
		cfg.Engines = Engines()
	}
	if len(cfg.Tests) == 0 {
		cfg.Tests = []string{path.TestConnect, path.TestTCP}
	}
	for _, e := range cfg.Engines {
		if !slices.Contains(Engines(), e) {
			return model.NotOneOf("--engines", e, Engines()...)
		}
	}
	for _, t := range cfg.Tests {
		if !slices.Contains(path.Tests(), t) {
			return model.NotOneOf("--tests", t, path.Tests()...)
		}
	}
	for _, f := range []struct {
		flag   string
		counts []int
	}{{"--policies", cfg.Policies}, {"--peers", cfg.Peers}, {"--program", []int{cfg.Program}}} {
		for _, n := range f.counts {
			if n < 0 || n > maxPeers {
				return model.OutOfRange(f.flag, n, fmt.Sprintf("0 to %d", maxPeers), 100)
			}
		}
	}
	return nil
}

// cells returns the cells of the run: without policies there are no peers.
func (cfg Config) cells() []Cell {
	var out []Cell
	for _, p := range cfg.Policies {
		for _, n := range cfg.Peers {
			if p == 0 {
				n = 0
			}
			if c := (Cell{Policies: p, Peers: n}); !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

type key struct {
	engine, test string
	cell         Cell
}

type bench struct {
	cfg    Config
	worlds []*world
	random *rand.Rand
	values map[key][]float64 // one value per round
}

// Run sets up all worlds, measures their traffic, and then the time to program rules.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Check(); err != nil {
		return Report{}, err
	}
	b := &bench{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), values: map[key][]float64{}}
	err := b.traffic(ctx)
	for _, w := range b.worlds {
		w.close()
	}
	if err == nil && cfg.Program > 0 {
		err = b.program(ctx)
	}
	if err != nil {
		return Report{}, err
	}
	return b.report(), nil
}

func (b *bench) traffic(ctx context.Context) error {
	if err := b.build(); err != nil {
		return err
	}
	for round := range b.cfg.N {
		b.cfg.Log.Info("measuring traffic", "round", round+1, "of", b.cfg.N)
		for _, test := range b.cfg.Tests {
			for _, i := range b.random.Perm(len(b.worlds)) {
				if err := ctx.Err(); err != nil {
					return err
				}
				v, err := b.worlds[i].once(test, b.cfg.Span)
				if err != nil {
					return err
				}
				k := key{b.worlds[i].engine.name(), test, b.worlds[i].cell}
				b.values[k] = append(b.values[k], v)
			}
		}
	}
	return nil
}

// build sets up all worlds, and warms up neighbor caches and programs.
func (b *bench) build() error {
	cells := b.cfg.cells()
	for _, c := range cells {
		for _, name := range b.cfg.Engines {
			if name == "routed" && c != cells[0] {
				continue
			}
			w := &world{engine: newEngine(name), cell: c}
			b.worlds = append(b.worlds, w)
			b.cfg.Log.Info("setting up a world", "engine", name, "cell", c.String())
			if err := w.setUp(b.cfg.Self); err != nil {
				return fmt.Errorf("%s, %s: %w", name, c, err)
			}
			for _, test := range b.cfg.Tests {
				if _, err := w.once(test, 5*time.Millisecond); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *world) once(test string, span time.Duration) (float64, error) {
	v, err := w.load.Once(test, span)
	if err != nil {
		return 0, fmt.Errorf("%s, %s, %s: %w", w.engine.name(), w.cell, test, err)
	}
	return v, nil
}

// The tests of programming; values are milliseconds.
const (
	testProgram = "program"
	testOneMore = "one more"
)

// program measures each engine on a new node: all entries, then one more.
func (b *bench) program(ctx context.Context) error {
	for round := range b.cfg.N {
		b.cfg.Log.Info("measuring programming", "round", round+1, "of", b.cfg.N)
		for _, blocks := range []bool{false, true} {
			c := Cell{Policies: 1, Peers: b.cfg.Program, Blocks: blocks}
			for _, i := range b.random.Perm(len(b.cfg.Engines)) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if name := b.cfg.Engines[i]; name != "routed" {
					if err := b.programOnce(newEngine(name), c); err != nil {
						return fmt.Errorf("%s, %s: %w", name, c, err)
					}
				}
			}
		}
	}
	return nil
}

func (b *bench) programOnce(e engine, c Cell) error {
	defer e.close()
	node, err := baseline.NewNode()
	if err != nil {
		return err
	}
	defer func() { _ = node.Close() }()
	// Warm up with the same policies and empty sets.
	if err := e.program(node, Cell{Policies: 1, Blocks: c.Blocks}); err != nil {
		return err
	}
	e.close()
	fresh, err := baseline.NewNode()
	if err != nil {
		return err
	}
	defer func() { _ = fresh.Close() }()
	begin := time.Now()
	if err := e.program(fresh, c); err != nil {
		return err
	}
	all := time.Since(begin)
	begin = time.Now()
	if err := e.addPeer(fresh, c, c.peer(c.Peers)); err != nil {
		return err
	}
	one := time.Since(begin)
	for test, d := range map[string]time.Duration{testProgram: all, testOneMore: one} {
		k := key{e.name(), test, c}
		b.values[k] = append(b.values[k], float64(d)/float64(time.Millisecond))
	}
	return nil
}
