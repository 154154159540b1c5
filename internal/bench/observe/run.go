// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// levelNone is the level without an agent.
const levelNone = "none"

// levels returns what is measured, the base of ratios first.
func levels() []string { return []string{flow.LevelOff, levelNone, flow.LevelDenied, flow.LevelFlows} }

// Config configures Run.
type Config struct {
	N int // rounds of connections; 0 skips them
	// Span is the duration of one measurement of connections.
	Span time.Duration
	// Rates are the flows per second at which the agent's CPU time and memory are measured, Costs the rounds of that, and
	// CostSpan the duration of one. Costs 0 skips it.
	Rates    []int
	Costs    int
	CostSpan time.Duration
	// Lines is how many packets are sent whose lines are awaited; 0 skips that.
	Lines int
	Seed  uint64
	// Self is the program weft-bench, Weft and Agent the programs weft and weft-agent, BinDir the directory of weft's plugins.
	Self, Weft, Agent, BinDir string
	Log                       *slog.Logger
}

// maxRate is the highest rate: one thread sends the datagrams.
const maxRate = 50000

// Check validates the configuration.
func (cfg Config) Check() error {
	for _, f := range []struct {
		flag           string
		value, example int
	}{{"-n", cfg.N, 31}, {"--costs", cfg.Costs, 3}, {"--lines", cfg.Lines, 200}} {
		if f.value < 0 {
			return model.OutOfRange(f.flag, f.value, "0 or more", f.example)
		}
	}
	if cfg.Span < time.Millisecond || cfg.Span > 10*time.Second {
		return model.OutOfRange("--span", cfg.Span, "1ms to 10s", "300ms")
	}
	if cfg.CostSpan < 100*time.Millisecond || cfg.CostSpan > 20*time.Second {
		return model.OutOfRange("--cost-span", cfg.CostSpan, "100ms to 20s", "5s")
	}
	for _, r := range cfg.Rates {
		if r < 0 || r > maxRate {
			return model.OutOfRange("--rates", r, fmt.Sprintf("0 to %d", maxRate), 1000)
		}
	}
	return nil
}

// cell is a level at a rate of flows.
type cell struct {
	level string
	rate  int
}

// cost is what the agent used in a cell.
type cost struct {
	cpu  []float64 // milliseconds a second
	rss  []float64 // MiB
	made []float64 // flows a second
	lost uint64
}

type bench struct {
	cfg      Config
	node     *node
	random   *rand.Rand
	connects map[string][]float64 // by level, one value per round
	// cpu is what a connection costs client, server and agent in microseconds of CPU time, agent the agent's part.
	cpu, agent map[string][]float64
	costs      map[cell]*cost
	lines      map[int][]float64 // milliseconds, by rate
	off        string            // what an agent of level off has for this
}

// Run creates a node and measures the levels on it.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	if err := cfg.Check(); err != nil {
		return report, err
	}
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return report, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{
		cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), connects: map[string][]float64{},
		cpu: map[string][]float64{}, agent: map[string][]float64{}, costs: map[cell]*cost{},
		lines: map[int][]float64{},
	}
	if b.node, err = newNode(ctx, cfg, dir); err != nil {
		return report, err
	}
	defer b.node.close()
	for _, step := range []func(context.Context) error{b.measureOff, b.measureConnects, b.measureCosts, b.measureLines} {
		if err := step(ctx); err != nil {
			return report, err
		}
	}
	return b.report(), nil
}

// measureOff lists what an agent of level off has for the observation.
func (b *bench) measureOff(ctx context.Context) error {
	if err := b.node.setLevel(ctx, flow.LevelOff); err != nil {
		return err
	}
	has, err := b.node.listed()
	if err != nil {
		return err
	}
	if has != (listing{Accounting: b.node.accounting}) {
		return fmt.Errorf("an agent of level off has %s", has)
	}
	b.off = has.String()
	return nil
}

// measureConnects measures the rate of connections.
func (b *bench) measureConnects(ctx context.Context) error {
	if b.cfg.N == 0 {
		return nil
	}
	pods := b.node.pods
	pair, err := path.StartPair(b.cfg.Self, pods[0].ns, pods[1].ns, pods[1].addr)
	if err != nil {
		return err
	}
	defer pair.Close()
	for round := range b.cfg.N {
		b.cfg.Log.Info("measuring connections", "round", round+1, "of", b.cfg.N)
		for _, level := range b.shuffled(levels()) {
			if err := b.node.setLevel(ctx, level); err != nil {
				return err
			}
			if _, err := pair.Once(path.TestConnect, b.cfg.Span/5); err != nil { // caches, neighbors
				return fmt.Errorf("connections, level %s: %w", level, err)
			}
			if err := b.measureConnect(level, pair); err != nil {
				return fmt.Errorf("connections, level %s: %w", level, err)
			}
		}
	}
	return nil
}

// measureConnect measures the rate of connections of one level, and the CPU time of one.
func (b *bench) measureConnect(level string, pair *path.Pair) error {
	used := func() (ends, agent time.Duration, err error) {
		if ends, err = pair.CPUTime(); err == nil && level != levelNone {
			agent, err = b.node.cpuTime()
		}
		return ends, agent, err
	}
	ends, agent, err := used()
	if err != nil {
		return err
	}
	count, rate, err := pair.Count(path.TestConnect, b.cfg.Span)
	if err != nil {
		return err
	}
	time.Sleep(gathered) // the agent reads events a little later
	endsAfter, agentAfter, err := used()
	if err != nil {
		return err
	}
	b.connects[level] = append(b.connects[level], rate)
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / count }
	b.agent[level] = append(b.agent[level], per(agentAfter-agent))
	b.cpu[level] = append(b.cpu[level], per(endsAfter-ends+agentAfter-agent))
	return nil
}

// gathered is longer than events wait until the agent reads them.
const gathered = 100 * time.Millisecond

// shuffled returns values in a new order.
func (b *bench) shuffled(values []string) []string {
	out := slices.Clone(values)
	b.random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// measureCosts measures CPU time and memory of a new agent in each cell.
func (b *bench) measureCosts(ctx context.Context) error {
	if b.cfg.Costs == 0 || len(b.cfg.Rates) == 0 {
		return nil
	}
	load, err := b.node.startLoad(b.cfg.Self)
	if err != nil {
		return err
	}
	defer load.Stop()
	for round := range b.cfg.Costs {
		b.cfg.Log.Info("measuring CPU time and memory", "round", round+1, "of", b.cfg.Costs)
		for _, rate := range b.cfg.Rates {
			for _, level := range b.shuffled([]string{flow.LevelOff, flow.LevelDenied, flow.LevelFlows}) {
				if err := b.measureCost(ctx, cell{level, rate}, load); err != nil {
					return fmt.Errorf("level %s at %d flows a second: %w", level, rate, err)
				}
			}
		}
	}
	return nil
}

func (b *bench) measureCost(ctx context.Context, c cell, load *load) error {
	if err := b.node.setLevel(ctx, c.level); err != nil {
		return err
	}
	before, err := b.node.cpuTime()
	if err != nil {
		return err
	}
	began := time.Now()
	made, err := load.run(ctx, c.rate, b.cfg.CostSpan)
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := b.node.cpuTime()
	if err != nil {
		return err
	}
	k := b.costs[c]
	if k == nil {
		k = &cost{}
		b.costs[c] = k
	}
	rss, err := b.node.rss()
	if err != nil {
		return err
	}
	lost, err := b.node.lost()
	if err != nil {
		return err
	}
	k.cpu = append(k.cpu, float64((after-before).Microseconds())/1000/took.Seconds())
	k.rss = append(k.rss, rss)
	k.made = append(k.made, float64(made)/took.Seconds())
	k.lost += lost
	return nil
}
