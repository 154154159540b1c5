// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
)

// Config configures Run.
type Config struct {
	Chain       Chain
	Impls       []Impl
	N           int   // samples per cell
	Concurrency []int // concurrent calls
	Pods        []int // attachments present while measuring
	Seed        uint64
	// Strace is the strace program; empty skips the pass that counts syscalls.
	Strace string
	// Empty is an empty static Go program, the baseline of the syscall counts; optional.
	Empty string
	Log   *slog.Logger
}

// Cell is one combination of pods present and concurrent calls.
type Cell struct {
	Pods        int
	Concurrency int
	Networks    int // additional networks per pod
}

// Run measures every implementation in every cell.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.N < 1 || len(cfg.Impls) == 0 {
		return Report{}, model.Errorf(model.CodeInvalidConf, "give -n 1 or more and at least one implementation",
			"bench: -n %d, %d implementations", cfg.N, len(cfg.Impls))
	}
	dir, volatile, remove, err := runDirs()
	if err != nil {
		return Report{}, err
	}
	defer remove()
	b := &bench{cfg: cfg, dir: dir, volatile: volatile, samples: newSamples()}
	for _, pods := range slices.Sorted(slices.Values(cfg.Pods)) {
		if err := b.level(ctx, pods); err != nil {
			return Report{}, err
		}
	}
	if err := b.tracePass(ctx); err != nil {
		return Report{}, err
	}
	return b.report(), nil
}

// tmpfsDir returns a directory on tmpfs, or "", the default for temporary files, if there is none.
func tmpfsDir() string {
	for _, dir := range []string{"/run", "/dev/shm"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
			return dir
		}
	}
	return ""
}

// bench is the state of a run.
type bench struct {
	cfg Config
	dir string
	// volatile is on tmpfs, as /run is on a node.
	volatile string
	samples  *samples
	notes    []string
	rounds   uint64
}

// bridgePorts is the kernel's limit of ports per bridge.
const bridgePorts = 1023

// level measures all cells with the given number of pods present.
func (b *bench) level(ctx context.Context, pods int) error {
	worlds, err := b.worlds(ctx, fmt.Sprintf("pods-%d", pods), pods, b.cfg.Impls)
	defer closeAll(worlds)
	if err != nil {
		return err
	}
	for _, w := range worlds {
		b.agentRSS(w, Cell{Pods: pods, Concurrency: 1})
	}
	for _, concurrency := range b.cfg.Concurrency {
		cell := Cell{Pods: pods, Concurrency: concurrency}
		if b.cfg.Chain.has("bridge") && pods+concurrency > bridgePorts {
			b.notes = append(b.notes,
				fmt.Sprintf("%d pods with %d concurrent calls were not measured: a bridge has at most %d ports", pods, concurrency, bridgePorts))
			continue
		}
		b.cfg.Log.Info("measuring a cell", "chain", b.cfg.Chain.Name, "pods", pods, "concurrency", concurrency, "n", b.cfg.N)
		if err := b.cell(ctx, worlds, cell); err != nil {
			return err
		}
		if err := b.cycles(ctx, worlds, cell); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) worlds(ctx context.Context, sub string, pods int, impls []Impl) ([]*world, error) {
	var worlds []*world
	for _, impl := range impls {
		w, err := newWorld(ctx, impl, b.cfg.Chain, b.dir+"/"+sub, b.volatile+"/"+sub)
		if err != nil {
			return worlds, err
		}
		worlds = append(worlds, w)
		b.cfg.Log.Info("attaching the pods that stay present", "impl", impl.Name, "pods", pods)
		if err := w.fill(ctx, pods); err != nil {
			return worlds, fmt.Errorf("%s: fill with %d pods: %w", impl.Name, pods, err)
		}
	}
	return worlds, nil
}

func closeAll(worlds []*world) {
	for _, w := range worlds {
		w.close()
	}
}

func (b *bench) agentRSS(w *world, cell Cell) {
	if kb, ok := w.agentKB("VmRSS"); ok {
		b.samples.add(w.impl.Name, cell, "agent_rss", "MiB", kb/1024)
	}
}

func (b *bench) report() Report {
	order := make([]string, 0, len(b.cfg.Impls)+1)
	for _, impl := range b.cfg.Impls {
		order = append(order, impl.Name)
	}
	rows := b.samples.rows(b.cfg.Chain, order)
	peer := func(name string) bool {
		return slices.ContainsFunc(b.cfg.Impls, func(i Impl) bool { return i.Name == name && i.Peer })
	}
	return Report{Rows: rows, Ratios: ratios(rows, peer), Notes: b.notes}
}
