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

// group is runs that go through their lists side by side: one run, or several whose lists are plain, which have one
// segment each. What one step does for all of them is one write, one transaction, one pass over the kernel.
type group struct {
	a      *adder
	spaces kernel.Spaces
	runs   []*run
	bad    *run // whose error it is; nil: of all, or of nobody

	// turn, which may be nil, is held while built-in plugins are planned and applied, where other networks of the pod are
	// attached at the same time: what one planner sees of the pod must still be true when its plan is applied.
	turn sync.Locker
}

// errTogether marks what failed for several networks at once, so that nobody knows whose it is.
var errTogether = errors.New("networks of one pod")

// attach does all of an ADD, beside the calls for other containers. What it has promised when it fails, others undo.
func (g *group) attach(ctx context.Context) error {
	release, err := g.a.locks.of(g.runs[0].job.Request.Network).Together(ctx)
	if err != nil {
		return err
	}
	defer release()
	defer g.drop()
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
	if err := g.guard(ctx, g.runs...); err != nil {
		return err
	}
	// The runs stay pending: should this fail, their undo is that of an unfinished ADD.
	if err := g.write("done", Done); err != nil {
		return err
	}
	g.tell()
	return nil
}

// segment does what comes next in the lists: a foreign plugin, or the built-in ones up to the next cut.
func (g *group) segment(ctx context.Context) error {
	if r := g.runs[0]; r.foreign() {
		return g.exec(ctx, r)
	}
	if g.turn != nil {
		g.turn.Lock()
		defer g.turn.Unlock()
	}
	if err := g.each((*run).open); err != nil {
		return err
	}
	if err := g.links(ctx); err != nil {
		return err
	}
	if err := g.addresses(ctx); err != nil {
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

// links makes the interfaces whose IPAM needs them.
func (g *group) links(ctx context.Context) error {
	var late []*run
	err := g.each(func(r *run) error {
		made, err := r.link(ctx)
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

// observe asks the kernel at once what the first planners of several runs must know; a planner by itself asks for
// itself.
func (g *group) observe(ctx context.Context) error {
	if len(g.runs) < 2 {
		return nil
	}
	var queries []state.Query
	for _, r := range g.runs {
		conf := r.job.Network.Plugins[r.seg.from]
		in := g.a.catalog.input(conf, r.job.Request)
		in.Chain.Prev, in.Answers = r.chain.Prev, state.Answers{}
		more, err := g.a.catalog.planners[conf.Type].Observe(in)
		if err != nil {
			return nil // whoever plans says it again, and in which network
		}
		for _, q := range more {
			if !slices.Contains(queries, q) {
				queries = append(queries, q)
			}
		}
	}
	known, err := g.spaces.Observe(ctx, queries)
	for _, r := range g.runs {
		r.seg.known = known
	}
	return g.ofAll(err)
}

// apply promises the last acts of runs of the group and does them: the promise is written and the guard stands before
// the kernel is touched, so that a process that is killed at any step leaves nothing that no record tells of, and no
// packet goes unguarded. The name is the promise's, for fault tests.
func (g *group) apply(ctx context.Context, name string, runs []*run) error {
	if err := g.write("promise "+name, Pending); err != nil {
		return err
	}
	if err := g.each(func(r *run) error { return g.a.unmanaged.check(ctx, r.rec) }); err != nil {
		return err
	}
	if err := g.guard(ctx, g.runs...); err != nil {
		return err
	}
	all := state.Fragment{Owner: plugin.Owner(runs[0].job.Request.Key())}
	var files []plugin.File
	for _, r := range runs {
		act := r.rec.Acts[len(r.rec.Acts)-1]
		all.Merge(*act.Fragment)
		files = append(files, act.Files...)
	}
	return g.ofAll(g.perform(ctx, all, files))
}

// perform applies what was promised.
func (g *group) perform(ctx context.Context, f state.Fragment, files []plugin.File) error {
	if err := writeFiles(files); err != nil {
		return err
	}
	kept, err := g.take()
	if err != nil {
		return err
	}
	err = g.spaces.Apply(ctx, f)
	if keepErr := kept(); keepErr != nil {
		return keepErr
	}
	if errors.Is(err, kernel.ErrFull) && g.a.agent {
		// The dead keep their place until they are gone.
		if err = g.a.reaper.Wait(ctx); err == nil {
			err = g.spaces.Apply(ctx, f)
		}
	}
	if err != nil {
		return applyFault(err, g.runs[0].job.Network.Name, f)
	}
	return g.a.fail.At("after apply")
}

// exec executes the foreign plugin of a run at its place in the list. Its answer is a fact for those behind it.
func (g *group) exec(ctx context.Context, r *run) error {
	r.rec.Acts = append(r.rec.Acts, Act{Kind: ActExec, Plugin: r.at})
	r.rec.Result = r.chain.Prev
	if err := g.write("promise exec", Pending); err != nil {
		return err
	}
	if err := g.guard(ctx, r); err != nil {
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

// save writes down the delegates of the runs.
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
	if err := g.write("promise save", Pending); err != nil {
		return err
	}
	if err := writeFiles(files); err != nil {
		return err
	}
	return g.a.fail.At("after save")
}

// write writes the records of all runs at once. The name is the step's, for fault tests.
func (g *group) write(name string, stage Stage) error {
	if err := g.a.fail.At("before " + name); err != nil {
		return err
	}
	records := make([]Record, 0, len(g.runs))
	for _, r := range g.runs {
		rec := r.rec
		rec.Stage = stage
		records = append(records, rec)
	}
	if err := g.a.records.put(records...); err != nil {
		return err
	}
	for _, r := range g.runs {
		r.promised, r.done = true, stage == Done
	}
	return g.a.fail.At("after " + name)
}

// guard has policy stand for the interfaces of runs, as far as that is known and news to it.
func (g *group) guard(ctx context.Context, runs ...*run) error {
	var news []model.WorkloadEndpoint
	for _, r := range runs {
		is, ok := g.a.hook.of(r.rec)
		if !ok || r.admitted != nil && r.admitted.Equal(is) {
			continue
		}
		news = append(news, is)
		r.admitted = &is
	}
	return g.a.hook.admit(ctx, news)
}

// tell tells everybody that the runs are done.
func (g *group) tell() {
	var admitted []model.AttachmentKey
	for _, r := range g.runs {
		if r.admitted != nil && !r.rec.Standby {
			admitted = append(admitted, r.admitted.Attachment)
		}
	}
	g.a.hook.attached(admitted)
	for _, r := range g.runs {
		g.a.dscp.note(r.rec)
		g.a.hook.moved(r.rec)
	}
}

// each does f for the runs, up to the first error, which is that run's.
func (g *group) each(f func(r *run) error) error {
	for _, r := range g.runs {
		if err := f(r); err != nil {
			g.bad = r
			return err
		}
	}
	return nil
}

// failed is the job whose error the group's is.
func (g *group) failed() int {
	if g.bad != nil {
		return g.bad.index
	}
	return g.runs[0].index
}

// ofAll marks an error of which nobody knows whose it is.
func (g *group) ofAll(err error) error {
	if err == nil || len(g.runs) == 1 {
		return err
	}
	return fmt.Errorf("%w: %w", errTogether, err)
}
