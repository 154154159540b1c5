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

// Config says what a run measures.
type Config struct {
	Chain       Chain
	Impls       []Impl
	N           int   // samples a cell
	Concurrency []int // calls at a time
	Pods        []int // attachments present while measuring
	Seed        uint64
	// Strace is the program that counts syscalls, empty to leave that pass out.
	Strace string
	// Empty is an empty static Go program, the base of the syscall figures; may be empty.
	Empty string
	Log   *slog.Logger
}

// Cell is one combination of pods present and calls at a time.
type Cell struct {
	Pods        int
	Concurrency int
	Networks    int // of a pod, beside its first
}

// Run measures every implementation in every cell.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.N < 1 || len(cfg.Impls) == 0 {
		return Report{}, model.Faultf(model.CodeInvalidConf, "give -n 1 or more and at least one implementation",
			"bench: -n %d, %d implementations", cfg.N, len(cfg.Impls))
	}
	dir, volatile, remove, err := places()
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

// memoryDir is a directory in memory, or the ordinary one for temporary files where there is none.
func memoryDir() string {
	for _, dir := range []string{"/run", "/dev/shm"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
			return dir
		}
	}
	return ""
}

// bench is a run in progress.
type bench struct {
	cfg Config
	dir string
	// volatile is in memory, as /run is on a node.
	volatile string
	samples  *samples
	notes    []string
	rounds   uint64
}

// bridgePorts is how many ports the kernel gives a bridge.
const bridgePorts = 1023

// level measures all cells with one number of pods present.
func (b *bench) level(ctx context.Context, pods int) error {
	worlds, err := b.worlds(ctx, fmt.Sprintf("pods-%d", pods), pods)
	defer closeAll(worlds)
	if err != nil {
		return err
	}
	for _, w := range worlds {
		b.memory(w, Cell{Pods: pods, Concurrency: 1})
	}
	for _, at := range b.cfg.Concurrency {
		cell := Cell{Pods: pods, Concurrency: at}
		if b.cfg.Chain.has("bridge") && pods+at > bridgePorts {
			b.notes = append(b.notes,
				fmt.Sprintf("%d pods and %d more were not measured: a bridge holds %d ports", pods, at, bridgePorts))
			continue
		}
		b.cfg.Log.Info("measuring", "chain", b.cfg.Chain.Name, "pods", pods, "at a time", at, "n", b.cfg.N)
		if err := b.cell(ctx, worlds, cell); err != nil {
			return err
		}
		if err := b.cycles(ctx, worlds, cell); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) worlds(ctx context.Context, sub string, pods int) ([]*world, error) {
	var worlds []*world
	for _, impl := range b.cfg.Impls {
		w, err := newWorld(ctx, impl, b.cfg.Chain, b.dir+"/"+sub, b.volatile+"/"+sub)
		if err != nil {
			return worlds, err
		}
		worlds = append(worlds, w)
		b.cfg.Log.Info("filling", "impl", impl.Name, "pods", pods)
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

func (b *bench) memory(w *world, cell Cell) {
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
