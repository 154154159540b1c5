// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// AddAll attaches one container to several networks, all or none. Neighbours in the list that are built in and have
// nothing of the node in common are planned one after the other and applied at once. failed is the job whose error it is.
func (a *Attacher) AddAll(ctx context.Context, jobs []Job) (results []model.Result, failed int, err error) {
	if len(jobs) == 0 {
		return nil, 0, nil
	}
	jobs = slices.Clone(jobs)
	id, failed, err := a.admit(jobs)
	if err != nil {
		return nil, failed, err
	}
	for i := range jobs {
		if err := a.gates(ctx, jobs[i]); err != nil {
			return nil, i, err
		}
	}
	release, err := a.cfg.Locks.Container(ctx, jobs[0].Request.ContainerID)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	spaces, done, err := a.spaces(jobs[0].Netns)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	w := &several{a: a, id: id, spaces: spaces, jobs: jobs, results: make([]model.Result, len(jobs))}
	if failed, err = w.beside(ctx); err != nil {
		return nil, failed, errors.Join(err, w.undo(ctx))
	}
	return w.results, 0, nil
}

// admit refuses, before anything is touched, what cannot be attached. Of jobs that stand for others it makes those.
func (a *Attacher) admit(jobs []Job) (id uint64, failed int, err error) {
	for i, job := range jobs {
		if job.Netns == nil {
			return 0, i, model.Faultf(model.CodeInvalidNetns, "", "CNI_NETNS %q is no network namespace", job.Request.Netns)
		}
		if id, err = a.netnsID(job); err == nil {
			jobs[i], err = a.unfold(job)
		}
		if err == nil {
			err = a.validate(jobs[i])
		}
		if err != nil {
			return 0, i, err
		}
	}
	return id, 0, nil
}

// several is one AddAll under way.
type several struct {
	a       *Attacher
	id      uint64 // of the container's namespace
	spaces  kernel.Spaces
	jobs    []Job
	results []model.Result
	runs    []*run // those that have promised something, in their order
}

// beside attaches beside the calls for other containers.
func (w *several) beside(ctx context.Context) (int, error) {
	for i := 0; i < len(w.jobs); {
		if n := w.abreast(i); n > 1 {
			if failed, err := w.parallel(ctx, i, n); err != nil {
				return failed, err
			}
			i += n
			continue
		}
		n := w.group(i)
		failed, err := w.attach(ctx, i, n)
		if err != nil {
			return failed, err
		}
		i += n
	}
	return 0, nil
}

// attach attaches the n jobs from i on.
func (w *several) attach(ctx context.Context, i, n int) (failed int, err error) {
	var fresh []*run
	for k := i; k < i+n; k++ {
		r, err := w.begin(ctx, k)
		if err != nil {
			return k, err
		}
		if r != nil {
			fresh = append(fresh, r)
		}
	}
	if len(fresh) > 1 {
		failed, err = w.together(ctx, fresh)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errTogether) {
			return failed, err
		}
		// One by one, the one that is wrong shows itself.
		w.a.cfg.Log.Info("networks are attached one by one", "container", w.jobs[i].Request.ContainerID, "err", err)
		if err := w.undo(ctx); err != nil {
			return failed, err
		}
		return w.attachAgain(ctx, i, n)
	}
	for _, r := range fresh {
		if err := w.alone(ctx, r); err != nil {
			return r.index, err
		}
	}
	return 0, nil
}

// begin is the run of job k, nil when an earlier call has done it already.
func (w *several) begin(ctx context.Context, k int) (*run, error) {
	same, before, err := w.a.settle(ctx, w.jobs[k], w.id, w.spaces)
	if err != nil {
		return nil, err
	}
	if same != nil {
		w.results[k] = *same
		return nil, nil
	}
	r := &run{a: w.a, job: w.jobs[k], spaces: w.spaces, rec: w.a.newRecord(w.jobs[k], w.id), index: k}
	r.rec.Acts = before
	return r, nil
}

// alone does a run that shares nothing with others.
func (w *several) alone(ctx context.Context, r *run) error {
	w.runs = append(w.runs, r)
	if err := r.beside(ctx); err != nil {
		return err
	}
	w.results[r.index] = *r.rec.Result
	return nil
}

// attachAgain attaches everything up to i+n one by one, after all of it was undone.
func (w *several) attachAgain(ctx context.Context, i, n int) (int, error) {
	for k := range i + n {
		r, err := w.begin(ctx, k)
		if err == nil && r != nil {
			err = w.alone(ctx, r)
		}
		if err != nil {
			return k, err
		}
	}
	return 0, nil
}

// errTogether marks what failed for several networks at once.
var errTogether = errors.New("networks of one pod")

// together promises, plans and applies several runs at once.
func (w *several) together(ctx context.Context, runs []*run) (failed int, err error) {
	release, err := w.a.cfg.Locks.Together(ctx)
	if err != nil {
		return runs[0].index, err
	}
	defer release()
	defer func() {
		for _, r := range runs {
			r.drop()
		}
	}()
	if failed, err := w.addresses(ctx, runs); err != nil {
		return failed, err
	}
	known, err := w.look(ctx, runs)
	if err != nil {
		return runs[0].index, fmt.Errorf("%w: %w", errTogether, err)
	}
	all := state.Fragment{Owner: plugin.Owner(runs[0].job.Request.Key())}
	var files []plugin.File
	for _, r := range runs {
		r.chain.Prev, r.known = r.job.Prev, known
		act, err := r.plan(ctx, 0, len(r.job.Network.Plugins), r.given, nil)
		if err != nil {
			return r.index, err
		}
		r.rec.Acts, r.rec.Result = append(r.rec.Acts, act), r.chain.Prev
		all.Merge(*act.Fragment)
		files = append(files, act.Files...)
	}
	if err := w.write(runs, "promise plan", Pending); err != nil {
		return runs[0].index, err
	}
	if err := w.a.unshared(ctx, runs...); err != nil {
		return runs[0].index, err
	}
	if err := w.a.guard(ctx, runs...); err != nil {
		return runs[0].index, err
	}
	runs[0].hold = gather(runs)
	if err := runs[0].perform(ctx, all, files); err != nil {
		return runs[0].index, fmt.Errorf("%w: %w", errTogether, err)
	}
	for _, r := range runs {
		w.results[r.index] = *r.rec.Result
	}
	if err := w.write(runs, "done", Done); err != nil {
		return runs[0].index, err
	}
	w.a.attached(runs...)
	for _, r := range runs {
		w.a.mark(r.rec)
		w.a.moved(r.rec)
	}
	return runs[0].index, nil
}

// look asks the kernel at once what the first planners of the runs must know.
func (w *several) look(ctx context.Context, runs []*run) (state.Answers, error) {
	var queries []state.Query
	for _, r := range runs {
		conf := r.job.Network.Plugins[0]
		more, err := w.a.cfg.Planners[conf.Type].Observe(plugin.Input{
			Conf: conf, Request: r.job.Request, Chain: plugin.Chain{Prev: r.job.Prev}, Answers: state.Answers{},
		})
		if err != nil {
			return nil, nil // whoever plans says it again, and in which network
		}
		for _, q := range more {
			if !slices.Contains(queries, q) {
				queries = append(queries, q)
			}
		}
	}
	return w.spaces.Observe(ctx, queries)
}

// write writes the records of all runs at once. The name is the step's, for fault tests.
func (w *several) write(runs []*run, name string, stage Stage) error {
	if err := w.a.step("before " + name); err != nil {
		return err
	}
	records := make([]Record, 0, len(runs))
	for _, r := range runs {
		rec := r.rec
		rec.Stage = stage
		records = append(records, rec)
	}
	if err := w.a.putAll(records); err != nil {
		return err
	}
	for _, r := range runs {
		if !r.promised {
			r.promised = true
			w.runs = append(w.runs, r)
		}
	}
	return w.a.step("after " + name)
}

// together is what a Memory is that writes several records in one.
type together interface{ PutAll(rs []Record) error }

func (a *Attacher) putAll(records []Record) error {
	m, ok := a.cfg.Memory.(together)
	if !ok {
		for _, r := range records {
			if err := a.put(r); err != nil {
				return err
			}
		}
		return nil
	}
	if err := m.PutAll(records); err != nil {
		return err
	}
	for _, r := range records {
		a.mourn.born(r)
		a.noted(r)
	}
	return nil
}
