// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// group is one run, or several batchable runs with one segment each, that are attached in lockstep: each step is one
// write, one transaction and one pass over the kernel for all.
type group struct {
	a         *adder
	spaces    kernel.Spaces
	runs      []*run
	failedRun *run // the run that failed; nil: all, or none

	// planLock, which may be nil, is held while built-in plugins are planned and applied if other networks of the pod are
	// attached concurrently: what a planner observes of the pod must still hold when its plan is applied.
	planLock sync.Locker
}

// errBatch is wrapped by an error that cannot be attributed to one network of the group.
var errBatch = errors.New("networks of one pod")

// attach performs an ADD, concurrently with calls for other containers. After an error the caller undoes what is
// recorded.
func (g *group) attach(ctx context.Context) error {
	release, err := g.a.locks.of(g.runs[0].job.Request.Network).RLock(ctx)
	if err != nil {
		return err
	}
	defer release()
	defer g.dropHolds()
	if err := g.save(); err != nil {
		return err
	}
	for !g.runs[0].ended() {
		if err := g.segment(ctx); err != nil {
			return err
		}
	}
	if err := g.each(func(r *run) error { return r.conclude(ctx) }); err != nil {
		return err
	}
	if err := g.enforcePolicy(ctx, g.runs...); err != nil {
		return err
	}
	// The runs stay pending: if this fails, they are undone as an unfinished ADD.
	if err := g.writeDone(); err != nil {
		return err
	}
	g.notifyDone()
	return nil
}

// segment handles the next part of the lists: a foreign plugin, or the built-in ones up to the next cut.
func (g *group) segment(ctx context.Context) error {
	if r := g.runs[0]; r.foreign() {
		return g.exec(ctx, r)
	}
	if g.planLock != nil {
		g.planLock.Lock()
		defer g.planLock.Unlock()
	}
	if err := g.each((*run).open); err != nil {
		return err
	}
	if err := g.links(ctx); err != nil {
		return err
	}
	if err := g.allocateAddresses(ctx); err != nil {
		return err
	}
	if err := g.observe(ctx); err != nil {
		return err
	}
	if err := g.each(func(r *run) error { return r.plan(ctx) }); err != nil {
		return err
	}
	return g.apply(ctx, "plan", g.runs)
}

// links creates the interfaces that IPAM needs before it allocates.
func (g *group) links(ctx context.Context) error {
	var late []*run
	err := g.each(func(r *run) error {
		made, err := r.planLink(ctx)
		if made {
			late = append(late, r)
		}
		return err
	})
	if err != nil || len(late) == 0 {
		return err
	}
	return g.apply(ctx, "link", late)
}

// observe answers the queries of the first planners of several runs with one request. A single run queries by itself.
func (g *group) observe(ctx context.Context) error {
	if len(g.runs) < 2 {
		return nil
	}
	var queries []state.Query
	of := make([][]state.Query, len(g.runs))
	for i, r := range g.runs {
		conf := r.job.Network.Plugins[r.seg.from]
		in := g.a.catalog.input(conf, r.job.Request)
		in.Chain.Prev, in.Answers = r.chain.Prev, state.Answers{}
		more, err := g.a.catalog.planners[conf.Type].Observe(in)
		if err != nil {
			return nil // the planner reports the error again, with the network's name
		}
		of[i] = more
		for _, q := range more {
			if !slices.Contains(queries, q) {
				queries = append(queries, q)
			}
		}
	}
	known, err := g.spaces.Observe(ctx, queries)
	for i, r := range g.runs {
		r.seg.answers = state.Answers{}
		for _, q := range of[i] {
			if answer, found := known[q]; found {
				r.seg.answers[q] = answer
			}
		}
	}
	return g.wrapShared(err)
}

// apply records the last acts of the runs and performs them. The record is written and policy is enforced before the
// kernel is changed: a crash leaves nothing without a record, and no packet bypasses policy. name is the failpoint's.
func (g *group) apply(ctx context.Context, name string, runs []*run) error {
	if err := g.write("promise " + name); err != nil {
		return err
	}
	if err := g.each(func(r *run) error { return g.a.unmanaged.check(ctx, r.rec) }); err != nil {
		return err
	}
	if err := g.enforcePolicy(ctx, g.runs...); err != nil {
		return err
	}
	all := state.Fragment{Owner: plugin.Owner(runs[0].job.Request.Key())}
	var files []plugin.File
	for _, r := range runs {
		act := r.rec.Acts[len(r.rec.Acts)-1]
		all.Merge(*act.Fragment)
		files = append(files, act.Files...)
	}
	return g.wrapShared(g.perform(ctx, all, files))
}

// perform applies what was recorded.
func (g *group) perform(ctx context.Context, f state.Fragment, files []plugin.File) error {
	if err := writeFiles(files); err != nil {
		return err
	}
	kept, err := g.commitAddresses()
	if err != nil {
		return err
	}
	err = g.spaces.Apply(ctx, f)
	if keepErr := kept(); keepErr != nil {
		return keepErr
	}
	if errors.Is(err, kernel.ErrFull) && g.a.agent {
		// Dead links occupy their bridge ports until they are deleted.
		if err = g.a.reaper.Wait(ctx); err == nil {
			err = g.spaces.Apply(ctx, f)
		}
	}
	if err != nil {
		return applyError(err, g.runs[0].job.Network.Name, f)
	}
	return g.a.fail.At("after apply")
}

// exec executes a run's next plugin, which is foreign. Its result is the input of the plugins after it.
func (g *group) exec(ctx context.Context, r *run) error {
	r.rec.Acts = append(r.rec.Acts, Act{Kind: ActExec, Plugin: r.at})
	r.rec.Result = r.chain.Prev
	if err := g.write("promise exec"); err != nil {
		return err
	}
	if err := g.enforcePolicy(ctx, r); err != nil {
		return err
	}
	conf := r.job.Network.Plugins[r.at]
	result, err := g.a.delegates.add(ctx, r.job, conf, conf.Type, r.chain.Prev)
	if err != nil {
		return err
	}
	r.chain.Prev = &result
	r.at++
	return g.a.fail.At("after exec")
}

// save saves the delegates of the runs.
func (g *group) save() error {
	var files []plugin.File
	for _, r := range g.runs {
		if len(r.job.saves) > 0 {
			act := r.saveAct()
			r.rec.Acts = append(r.rec.Acts, act)
			files = append(files, act.Files...)
		}
	}
	if len(files) == 0 {
		return nil
	}
	if err := g.write("promise save"); err != nil {
		return err
	}
	if err := writeFiles(files); err != nil {
		return err
	}
	return g.a.fail.At("after save")
}

// write writes the records of all runs as pending, in one transaction. name is the failpoint's.
func (g *group) write(name string) error {
	if err := g.a.fail.At("before " + name); err != nil {
		return err
	}
	if err := g.a.records.put(g.records()...); err != nil {
		return err
	}
	for _, r := range g.runs {
		r.recorded, r.stored = true, r.rec
	}
	return g.a.fail.At("after " + name)
}

// writeDone writes the records of all runs as done, in one transaction.
func (g *group) writeDone() error {
	if err := g.a.fail.At("before done"); err != nil {
		return err
	}
	records := g.records()
	var err error
	if slices.ContainsFunc(g.runs, func(r *run) bool { return !r.onlyStageDiffers() }) {
		for i := range records {
			records[i].Stage = Done
		}
		err = g.a.records.put(records...)
	} else {
		err = g.a.records.setStage(Done, records...)
	}
	if err != nil {
		return err
	}
	for _, r := range g.runs {
		r.recorded, r.done = true, true
	}
	return g.a.fail.At("after done")
}

func (g *group) records() []Record {
	records := make([]Record, 0, len(g.runs))
	for _, r := range g.runs {
		records = append(records, r.rec)
	}
	return records
}

// enforcePolicy enforces policy on the runs' interfaces that are known and not admitted yet.
func (g *group) enforcePolicy(ctx context.Context, runs ...*run) error {
	var added []model.WorkloadEndpoint
	for _, r := range runs {
		is, ok := g.a.hook.of(r.rec)
		if !ok || r.admitted != nil && r.admitted.Equal(is) {
			continue
		}
		added = append(added, is)
		r.admitted = &is
	}
	return g.a.hook.admit(ctx, added)
}

// notifyDone notifies the other components that the runs are done.
func (g *group) notifyDone() {
	var admitted []model.AttachmentKey
	for _, r := range g.runs {
		if r.admitted != nil && !r.rec.Standby {
			admitted = append(admitted, r.admitted.Attachment)
		}
	}
	g.a.hook.attached(admitted)
	for _, r := range g.runs {
		g.a.dscp.note(r.rec)
		g.a.hook.vmChanged(r.rec)
	}
}

// each calls f for each run up to the first error, which is attributed to that run.
func (g *group) each(f func(r *run) error) error {
	for _, r := range g.runs {
		if err := f(r); err != nil {
			g.failedRun = r
			return err
		}
	}
	return nil
}

// failed returns the index of the job that the group's error is about.
func (g *group) failed() int {
	if g.failedRun != nil {
		return g.failedRun.index
	}
	return g.runs[0].index
}

// wrapShared wraps an error that cannot be attributed to one run.
func (g *group) wrapShared(err error) error {
	if err == nil || len(g.runs) == 1 {
		return err
	}
	return fmt.Errorf("%w: %w", errBatch, err)
}
