// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/model"
)

// The tests of frames: from the machine to where its pod's wire ends on the node, and from there; and from the machine
// to another pod of that node, and from that. Those of TCP are bench/path's, from the guest and to the guest.
const (
	TestOut     = "frames out"
	TestIn      = "frames in"
	TestOutPeer = "frames out to pod"
	TestInPeer  = "frames in from pod"
)

const toGuest = " in"

// Tests are all tests.
func Tests() []string {
	return []string{
		TestOut, TestIn, TestOutPeer, TestInPeer, path.TestTCP, path.TestConnect, path.TestStream, path.TestTCP + toGuest,
		path.TestConnect + toGuest, path.TestStream + toGuest,
	}
}

// Config says what Run measures.
type Config struct {
	Designs []string // all when empty
	Tests   []string // all when empty
	N       int      // rounds
	// Span is how long one test of one world takes.
	Span time.Duration
	// Starts is how many machines of each design are started; then, where masquerade is measured, weft-guest is. 0 leaves
	// that out.
	Starts int
	Seed   uint64
	// Self is weft-bench; weft-guest is beside it.
	Self string
	Log  *slog.Logger
}

func (cfg *Config) check() error {
	if cfg.N < 1 || cfg.Starts < 0 || cfg.Span < time.Millisecond || cfg.Span > 10*time.Second {
		return model.Faultf(model.CodeInvalidConf, "give -n 1 or more, --span between 1ms and 10s, and --starts 0 or more",
			"bench: -n %d, --span %s, --starts %d", cfg.N, cfg.Span, cfg.Starts)
	}
	if len(cfg.Designs) == 0 {
		cfg.Designs = Designs()
	}
	if len(cfg.Tests) == 0 {
		cfg.Tests = Tests()
	}
	for _, d := range cfg.Designs {
		if _, ok := find(d); !ok {
			return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("known: %q", Designs()), "bench: there is no design %q", d)
		}
	}
	for _, t := range cfg.Tests {
		if !slices.Contains(Tests(), t) {
			return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("known: %q", Tests()), "bench: there is no test %q", t)
		}
	}
	return nil
}

// key is one test of one design.
type key struct{ design, test string }

type bench struct {
	cfg    Config
	dir    string
	worlds []*world
	random *rand.Rand
	// values has one of each round; those of frames are microseconds each, and rates are beside them.
	values, rates map[key][]float64
	notes         []string
}

// Run brings all worlds up and measures them.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.check(); err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp(volatile(), "weft-bench-")
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{
		cfg: cfg, dir: dir, random: rand.New(rand.NewPCG(cfg.Seed, 0)), values: map[key][]float64{},
		rates: map[key][]float64{},
	}
	defer b.close()
	if err := b.starts(ctx); err != nil {
		return Report{}, err
	}
	if cfg.Starts > 0 && slices.Contains(cfg.Designs, masquerade) {
		if err := b.memory(ctx); err != nil {
			return Report{}, err
		}
	}
	if err := b.traffic(ctx); err != nil {
		return Report{}, err
	}
	return b.report(), nil
}

// volatile is where records are on a node: not on a disk.
func volatile() string {
	const run = "/run"
	if unix.Access(run, unix.W_OK) == nil {
		return run
	}
	return ""
}

// traffic has all worlds take turns.
func (b *bench) traffic(ctx context.Context) error {
	if err := b.build(ctx); err != nil {
		return err
	}
	for round := range b.cfg.N {
		b.cfg.Log.Info("measuring", "round", round+1, "of", b.cfg.N)
		for _, test := range b.cfg.Tests {
			for _, i := range b.random.Perm(len(b.worlds)) {
				if err := ctx.Err(); err != nil {
					return err
				}
				w := b.worlds[i]
				value, rate, err := w.once(test, b.cfg.Span)
				if err != nil {
					return err
				}
				k := key{w.name, test}
				b.values[k], b.rates[k] = append(b.values[k], value), append(b.rates[k], rate)
			}
		}
	}
	return nil
}

// build brings all worlds up, and has programs in memory.
func (b *bench) build(ctx context.Context) error {
	for i, name := range b.cfg.Designs {
		d, _ := find(name)
		w := &world{design: d, dir: filepath.Join(b.dir, strconv.Itoa(i))}
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			return err
		}
		b.cfg.Log.Info("building", "design", name)
		b.worlds = append(b.worlds, w)
		if err := w.up(ctx, b.cfg.Self); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
		for _, test := range b.cfg.Tests {
			if _, _, err := w.once(test, 5*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// wait sends until frames arrive: a link that was opened is not yet one that a bridge forwards to.
func (w *world) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		_, _, err := w.once(TestOutPeer, time.Millisecond)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (b *bench) close() {
	for _, w := range b.worlds {
		w.close()
	}
}

// once takes one test: its value, and of frames how many arrive in a second.
func (w *world) once(test string, span time.Duration) (value, rate float64, err error) {
	switch test {
	case TestOut, TestIn, TestOutPeer, TestInPeer:
		value, rate, err = w.frames(test, span)
	case path.TestTCP, path.TestConnect, path.TestStream:
		value, err = w.from.Typical(test, span)
	default:
		value, err = w.to.Typical(test[:len(test)-len(toGuest)], span)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s, %s: %w", w.name, test, err)
	}
	return value, rate, nil
}
