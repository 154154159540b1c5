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

// The tests of frames: from the VM to its host interface and back, and from the VM to another pod of the node and back.
// The tests of TCP are those of bench/path, from the guest and to the guest.
const (
	TestOut     = "frames out"
	TestIn      = "frames in"
	TestOutPeer = "frames out to pod"
	TestInPeer  = "frames in from pod"
)

const toGuest = " in"

// Tests returns the names of all tests.
func Tests() []string {
	return []string{
		TestOut, TestIn, TestOutPeer, TestInPeer, path.TestTCP, path.TestConnect, path.TestStream, path.TestTCP + toGuest,
		path.TestConnect + toGuest, path.TestStream + toGuest,
	}
}

// Config configures Run.
type Config struct {
	Designs []string // all when empty
	Tests   []string // all when empty
	N       int      // rounds
	// Span is the duration of one test of one world.
	Span time.Duration
	// Starts is the number of VMs of each design to start; the memory of weft-guest is measured, too, if masquerade is
	// among the designs. 0 skips both.
	Starts int
	Seed   uint64
	// Self is the program weft-bench; weft-guest is in the same directory.
	Self string
	Log  *slog.Logger
}

// Check validates the configuration and sets defaults.
func (cfg *Config) Check() error {
	if cfg.N < 1 {
		return model.OutOfRange("-n", cfg.N, "1 or more", 7)
	}
	if cfg.Span < time.Millisecond || cfg.Span > 10*time.Second {
		return model.OutOfRange("--span", cfg.Span, "1ms to 10s", "200ms")
	}
	if cfg.Starts < 0 {
		return model.OutOfRange("--starts", cfg.Starts, "0 or more", 100)
	}
	if len(cfg.Designs) == 0 {
		cfg.Designs = Designs()
	}
	if len(cfg.Tests) == 0 {
		cfg.Tests = Tests()
	}
	for _, d := range cfg.Designs {
		if _, ok := findDesign(d); !ok {
			return model.NotOneOf("--designs", d, Designs()...)
		}
	}
	for _, t := range cfg.Tests {
		if !slices.Contains(Tests(), t) {
			return model.NotOneOf("--tests", t, Tests()...)
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
	// values has one value per round: microseconds for frames; rates has the frames per second.
	values, rates map[key][]float64
	notes         []string
}

// Run creates all worlds and measures them.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Check(); err != nil {
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
		if err := b.guestRSS(ctx); err != nil {
			return Report{}, err
		}
	}
	if err := b.traffic(ctx); err != nil {
		return Report{}, err
	}
	return b.report(), nil
}

// volatile returns a directory on tmpfs, where records are on a node.
func volatile() string {
	const run = "/run"
	if unix.Access(run, unix.W_OK) == nil {
		return run
	}
	return ""
}

// traffic measures all worlds, interleaved.
func (b *bench) traffic(ctx context.Context) error {
	if err := b.build(ctx); err != nil {
		return err
	}
	for round := range b.cfg.N {
		b.cfg.Log.Info("measuring traffic", "round", round+1, "of", b.cfg.N)
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

// build creates all worlds and warms up the programs.
func (b *bench) build(ctx context.Context) error {
	for i, name := range b.cfg.Designs {
		d, _ := findDesign(name)
		w := &world{design: d, dir: filepath.Join(b.dir, strconv.Itoa(i))}
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			return err
		}
		b.cfg.Log.Info("creating a world", "design", name)
		b.worlds = append(b.worlds, w)
		if err := w.setUp(ctx, b.cfg.Self); err != nil {
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

// wait sends frames until one arrives: a bridge does not forward to a port immediately after its tap is opened.
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

// once runs one test and returns its value; for frames also the rate per second.
func (w *world) once(test string, span time.Duration) (value, rate float64, err error) {
	switch test {
	case TestOut, TestIn, TestOutPeer, TestInPeer:
		value, rate, err = w.frames(test, span)
	case path.TestTCP, path.TestConnect, path.TestStream:
		value, err = w.outbound.Typical(test, span)
	default:
		value, err = w.inbound.Typical(test[:len(test)-len(toGuest)], span)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s, %s: %w", w.name, test, err)
	}
	return value, rate, nil
}
