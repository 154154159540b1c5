// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// batch is the ADD of one or several networks of one container, under way.
type batch struct {
	a       *adder
	id      uint64 // of the container's namespace
	spaces  kernel.Spaces
	jobs    []Job
	results []model.Result
	runs    []*run // those that were begun, in their order
}

// add attaches the jobs in their order, neighbors together where they can be.
func (b *batch) add(ctx context.Context) (failed int, err error) {
	for i := 0; i < len(b.jobs); {
		n := b.parallel(i)
		attach := b.attachParallel
		if n < 2 {
			n, attach = b.together(i), b.attach
		}
		if failed, err := attach(ctx, i, n); err != nil {
			return failed, err
		}
		i += n
	}
	return 0, nil
}

// attach attaches the n jobs from i on together.
func (b *batch) attach(ctx context.Context, i, n int) (failed int, err error) {
	begun := len(b.runs)
	if failed, err := b.begin(ctx, i, n); err != nil || len(b.runs) == begun {
		return failed, err
	}
	g := &group{a: b.a, spaces: b.spaces, runs: slices.Clone(b.runs[begun:])}
	if err = g.attach(ctx); err == nil {
		b.keep(g)
		return 0, nil
	}
	if !errors.Is(err, errTogether) || ctx.Err() != nil {
		return g.failed(), err
	}
	// One by one, the one that is wrong shows itself.
	b.a.log.Info("networks are attached one by one", "container", b.jobs[i].Request.ContainerID, "err", err)
	if bad := b.undo(ctx, begun); bad != nil {
		return g.failed(), errors.Join(err, bad)
	}
	for k := i; k < i+n; k++ {
		if failed, err := b.attach(ctx, k, 1); err != nil {
			return failed, err
		}
	}
	return 0, nil
}

// attachParallel attaches the n jobs from i on at the same time: their foreign plugins are executed beside each other,
// their built-in ones take turns. When one fails, the others are ended.
func (b *batch) attachParallel(ctx context.Context, i, n int) (failed int, err error) {
	begun := len(b.runs)
	if failed, err := b.begin(ctx, i, n); err != nil {
		return failed, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var turn sync.Mutex
	var all sync.WaitGroup
	var first sync.Once
	for _, r := range b.runs[begun:] {
		g := &group{a: b.a, spaces: b.spaces, runs: []*run{r}, turn: &turn}
		all.Go(func() {
			if bad := g.attach(ctx); bad != nil {
				first.Do(func() { failed, err = r.index, bad }) // those that it ends fail after it
				cancel()
				return
			}
			b.keep(g)
		})
	}
	all.Wait()
	return failed, err
}

// begin begins the runs of the n jobs from i on, but for those that an earlier call has done already.
func (b *batch) begin(ctx context.Context, i, n int) (failed int, err error) {
	for k := i; k < i+n; k++ {
		same, before, err := b.a.settler.settle(ctx, b.jobs[k], b.id, b.spaces)
		if err != nil {
			return k, err
		}
		if same != nil {
			b.results[k] = *same
			continue
		}
		r := &run{a: b.a, index: k, job: b.jobs[k], spaces: b.spaces, rec: b.a.newRecord(b.jobs[k], b.id)}
		r.rec.Acts, r.chain.Prev = before, r.job.Prev
		b.runs = append(b.runs, r)
	}
	return 0, nil
}

// keep notes the results of a group.
func (b *batch) keep(g *group) {
	for _, r := range g.runs {
		b.results[r.index] = *r.rec.Result
	}
}

// undo undoes the runs from the given one on, backwards. Those that were done already are pending again before anything
// of them goes: nobody repairs them meanwhile, and who comes after a kill, or after an undo that failed, goes on with
// it.
func (b *batch) undo(ctx context.Context, from int) error {
	var errs []error
	var done []Record
	for _, r := range b.runs[from:] {
		if r.done {
			done = append(done, r.rec)
		}
	}
	if len(done) > 0 {
		err := b.a.fail.At("before pending")
		if err == nil {
			err = b.a.records.put(done...)
		}
		if err != nil { // as where a release begins: no reason to keep the addresses and the links
			b.a.log.Warn("records are not marked as pending again", "first", done[0].Key().String(), "err", err)
		}
	}
	for _, r := range slices.Backward(b.runs[from:]) {
		if r.promised {
			errs = append(errs, b.a.undoer.abandon(ctx, r.rec, b.spaces))
		}
	}
	b.runs = b.runs[:from]
	return errors.Join(errs...)
}

// together is how many jobs from i on are planned together.
func (b *batch) together(i int) int {
	n, own := 0, 0
	for _, job := range b.jobs[i:] {
		apart, plain := b.a.catalog.plain(job)
		if !plain {
			break
		}
		if !apart {
			own++
		}
		if own > 1 {
			break
		}
		n++
	}
	return max(n, 1)
}

// parallel is how many jobs from i on are executed at the same time: neighbors that may be and that have foreign
// plugins, whose time is spent in waiting for programs.
func (b *batch) parallel(i int) int {
	n := 0
	for _, job := range b.jobs[i:] {
		if !job.Parallel {
			break
		}
		if _, plain := b.a.catalog.plain(job); plain || needsOthers(job) {
			break
		}
		n++
	}
	return n
}

// needsOthers reports whether a job is about what another network of the container has made.
func needsOthers(job Job) bool {
	return slices.ContainsFunc(job.Network.Plugins, func(p model.PluginConf) bool { return p.Type == plugin.DirectType })
}
