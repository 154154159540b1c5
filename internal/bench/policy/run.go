// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/bench/byhand"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/model"
)

// Config says what Run measures.
type Config struct {
	Engines  []string // all when empty
	Policies []int
	Peers    []int
	Tests    []string // of bench/path; connect and tcp rr when empty
	N        int      // rounds
	// Span is how long one test of one world takes.
	Span time.Duration
	// Program is how many entries are programmed; 0 leaves that out.
	Program int
	Seed    uint64
	// Self is weft-bench.
	Self string
	Log  *slog.Logger
}

// maxPeers is what fits into the addresses that peers have.
const maxPeers = 1 << 19

func (cfg *Config) check() error {
	if cfg.N < 1 || cfg.Span < time.Millisecond || cfg.Span > 10*time.Second {
		return model.Faultf(model.CodeInvalidConf, "give -n 1 or more, and --span between 1ms and 10s",
			"bench: -n %d, --span %s", cfg.N, cfg.Span)
	}
	if len(cfg.Engines) == 0 {
		cfg.Engines = Engines()
	}
	if len(cfg.Tests) == 0 {
		cfg.Tests = []string{path.TestConnect, path.TestTCP}
	}
	for _, e := range cfg.Engines {
		if !slices.Contains(Engines(), e) {
			return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("known: %q", Engines()), "bench: there is no engine %q", e)
		}
	}
	for _, t := range cfg.Tests {
		if !slices.Contains(path.Tests(), t) {
			return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("known: %q", path.Tests()), "bench: there is no test %q", t)
		}
	}
	for _, n := range append(slices.Clone(cfg.Policies), append(cfg.Peers, cfg.Program)...) {
		if n < 0 || n > maxPeers {
			return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("give 0 to %d", maxPeers),
				"bench: %d policies, peers or entries", n)
		}
	}
	return nil
}

// cells are those of the run: without policies there are no peers.
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
	values map[key][]float64 // a value a round
}

// Run brings all worlds up, measures their packets, and then how long programming takes.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.check(); err != nil {
		return Report{}, err
	}
	b := &bench{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), values: map[key][]float64{}}
	err := b.packets(ctx)
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

func (b *bench) packets(ctx context.Context) error {
	if err := b.build(); err != nil {
		return err
	}
	for round := range b.cfg.N {
		b.cfg.Log.Info("measuring", "round", round+1, "of", b.cfg.N)
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

// build brings all worlds up, and has neighbors found and programs in memory.
func (b *bench) build() error {
	cells := b.cfg.cells()
	for _, c := range cells {
		for _, name := range b.cfg.Engines {
			if name == "routed" && c != cells[0] {
				continue
			}
			w := &world{engine: newEngine(name), cell: c}
			b.worlds = append(b.worlds, w)
			b.cfg.Log.Info("building", "engine", name, "cell", c.String())
			if err := w.up(b.cfg.Self); err != nil {
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
	v, err := w.ends.Once(test, span)
	if err != nil {
		return 0, fmt.Errorf("%s, %s, %s: %w", w.engine.name(), w.cell, test, err)
	}
	return v, nil
}

// The tests of programming; each value is milliseconds.
const (
	testProgram = "program"
	testOneMore = "one more"
)

// program takes each engine in a node of its own: all entries, then one more.
func (b *bench) program(ctx context.Context) error {
	for round := range b.cfg.N {
		b.cfg.Log.Info("programming", "round", round+1, "of", b.cfg.N)
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
	node, err := byhand.NewNode()
	if err != nil {
		return err
	}
	defer func() { _ = node.Close() }()
	// What a node has before: the same policies, empty sets.
	if err := e.program(node, Cell{Policies: 1, Blocks: c.Blocks}); err != nil {
		return err
	}
	e.close()
	fresh, err := byhand.NewNode()
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
	if err := e.more(fresh, c, c.peer(c.Peers)); err != nil {
		return err
	}
	one := time.Since(begin)
	for test, d := range map[string]time.Duration{testProgram: all, testOneMore: one} {
		k := key{e.name(), test, c}
		b.values[k] = append(b.values[k], float64(d)/float64(time.Millisecond))
	}
	return nil
}
