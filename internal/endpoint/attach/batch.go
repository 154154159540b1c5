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

// batch is an ADD in progress: one or several networks of one container.
type batch struct {
	a       *adder
	id      uint64 // of the container's namespace
	spaces  kernel.Spaces
	jobs    []Job
	results []model.Result
	runs    []*run // begun so far, in order
}

// add attaches the jobs in order, consecutive ones as a group where possible.
func (b *batch) add(ctx context.Context) (failed int, err error) {
	for i := 0; i < len(b.jobs); {
		n := b.parallelPrefix(i)
		attach := b.attachParallel
		if n < 2 {
			n, attach = b.batchSize(i), b.attach
		}
		if failed, err := attach(ctx, i, n); err != nil {
			return failed, err
		}
		i += n
	}
	return 0, nil
}

// attach attaches n jobs, from i on, as one group.
func (b *batch) attach(ctx context.Context, i, n int) (failed int, err error) {
	begun := len(b.runs)
	if failed, err := b.begin(ctx, i, n); err != nil || len(b.runs) == begun {
		return failed, err
	}
	g := &group{a: b.a, spaces: b.spaces, runs: slices.Clone(b.runs[begun:])}
	if err = g.attach(ctx); err == nil {
		b.setResults(g)
		return 0, nil
	}
	if !errors.Is(err, errBatch) || ctx.Err() != nil {
		return g.failed(), err
	}
	// Attached one by one, the failing network identifies itself.
	b.a.log.Info("pod's networks cannot be attached as a group; attaching them one by one",
		"container", b.jobs[i].Request.ContainerID, "err", err)
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

// attachParallel attaches n jobs, from i on, concurrently: foreign plugins run in parallel, built-in ones take turns.
// The first failure cancels the others.
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
		g := &group{a: b.a, spaces: b.spaces, runs: []*run{r}, planLock: &turn}
		all.Go(func() {
			if bad := g.attach(ctx); bad != nil {
				first.Do(func() { failed, err = r.index, bad }) // the canceled ones fail later
				cancel()
				return
			}
			b.setResults(g)
		})
	}
	all.Wait()
	return failed, err
}

// begin begins the runs of n jobs, from i on. A job that an earlier call has finished gets that call's result.
func (b *batch) begin(ctx context.Context, i, n int) (failed int, err error) {
	for k := i; k < i+n; k++ {
		same, before, err := b.a.prior.resolve(ctx, b.jobs[k], b.id, b.spaces)
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

// setResults stores the results of a group.
func (b *batch) setResults(g *group) {
	for _, r := range g.runs {
		b.results[r.index] = *r.rec.Result
	}
}

// undo undoes the runs from index from on, in reverse. Runs that were done are marked as pending first, so that they
// are not repaired meanwhile, and a later call continues the undo after a crash or a failure.
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
		if err != nil { // as in markReleasing: no reason to keep the addresses and the links
			b.a.log.Warn("records cannot be marked as pending again", "first", done[0].Key().String(), "err", err)
		}
	}
	for _, r := range slices.Backward(b.runs[from:]) {
		if r.recorded {
			errs = append(errs, b.a.rollback.abandon(ctx, r.rec, b.spaces))
		}
	}
	b.runs = b.runs[:from]
	return errors.Join(errs...)
}

// batchSize returns how many jobs, from i on, are planned as one group.
func (b *batch) batchSize(i int) int {
	n, own := 0, 0
	for _, job := range b.jobs[i:] {
		apart, plain := b.a.catalog.batchable(job)
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

// parallelPrefix returns how many jobs, from i on, are attached concurrently: consecutive ones that permit it and have
// foreign plugins, which spend their time waiting for programs.
func (b *batch) parallelPrefix(i int) int {
	n := 0
	for _, job := range b.jobs[i:] {
		if !job.Parallel {
			break
		}
		if _, plain := b.a.catalog.batchable(job); plain || needsOtherNetworks(job) {
			break
		}
		n++
	}
	return n
}

// needsOtherNetworks reports whether a job depends on an interface of another network of the container.
func needsOtherNetworks(job Job) bool {
	return slices.ContainsFunc(job.Network.Plugins, func(p model.PluginConf) bool { return p.Type == plugin.DirectType })
}
