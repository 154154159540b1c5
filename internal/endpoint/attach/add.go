// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// addAll attaches one container to one or several networks, all or none. Consecutive built-in networks that share no
// object of the node are planned one by one and applied in one pass. failed is the index of the job that the error is
// about.
func (a *adder) addAll(ctx context.Context, jobs []Job) (results []model.Result, failed int, err error) {
	if len(jobs) == 0 {
		return nil, 0, nil
	}
	jobs = slices.Clone(jobs)
	id, failed, err := a.admit(jobs)
	if err != nil {
		return nil, failed, err
	}
	for i := range jobs {
		if err := a.waitGates(ctx, jobs[i]); err != nil {
			return nil, i, err
		}
	}
	release, err := a.locks.of(jobs[0].Request.Network).Container(ctx, jobs[0].Request.ContainerID)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	if gone := jobs[0].Abandoned; gone != nil && gone() {
		return nil, 0, model.Errorf(model.CodeTryAgain, "", "the caller gave up while the call waited")
	}
	spaces, done, err := a.namespaces.open(jobs[0].Netns)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	b := &batch{a: a, id: id, spaces: spaces, jobs: jobs, results: make([]model.Result, len(jobs))}
	if failed, err = b.add(ctx); err != nil {
		return nil, failed, errors.Join(err, b.undo(ctx, 0))
	}
	return b.results, 0, nil
}

// admit validates all jobs before anything is changed, and resolves plugins that delegate to another one.
func (a *adder) admit(jobs []Job) (id uint64, failed int, err error) {
	for i, job := range jobs {
		if job.Netns == nil {
			return 0, i, model.Errorf(model.CodeInvalidNetns, "", "CNI_NETNS %q is no network namespace", job.Request.Netns)
		}
		if id, err = a.namespaces.id(job); err == nil {
			jobs[i], err = a.resolver.resolve(job)
		}
		if err == nil {
			err = a.catalog.validate(jobs[i])
		}
		if err != nil {
			return 0, i, err
		}
	}
	return id, 0, nil
}
