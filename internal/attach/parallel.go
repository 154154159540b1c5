// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// abreast is how many jobs from i on are executed at the same time: neighbours that may be and that have foreign plugins,
// whose time is spent in waiting for programs.
func (w *several) abreast(i int) int {
	n := 0
	for _, job := range w.jobs[i:] {
		if !job.Parallel {
			break
		}
		if _, plain := w.a.plain(job); plain || needsOthers(job) {
			break
		}
		n++
	}
	return n
}

// needsOthers tells whether a job is about what another network of the container has made.
func needsOthers(job Job) bool {
	return slices.ContainsFunc(job.Network.Plugins, func(p model.PluginConf) bool { return p.Type == plugin.DirectType })
}

// parallel attaches the n jobs from i on at the same time: their foreign plugins are executed beside each other, their
// built-in ones take turns. When one fails, the others are ended.
func (w *several) parallel(ctx context.Context, i, n int) (failed int, err error) {
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
	var turn sync.Mutex
	for _, r := range fresh {
		r.turn = &turn
	}
	w.runs = append(w.runs, fresh...)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var first sync.Once
	for _, r := range fresh {
		all.Go(func() {
			if bad := r.beside(ctx); bad != nil {
				first.Do(func() { failed, err = r.index, bad }) // those that it ends fail after it
				cancel()
				return
			}
			w.results[r.index] = *r.rec.Result
		})
	}
	all.Wait()
	return failed, err
}
