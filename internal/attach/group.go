// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/plan/plugin"
)

// group is how many jobs from i on are planned together.
func (w *several) group(i int) int {
	n, own := 0, 0
	for _, job := range w.jobs[i:] {
		apart, plain := w.a.plain(job)
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

// plain tells whether a job can be planned beside others: everything is built in and its addresses are known before. apart
// is one that has nothing of the node in common with others: no bridge, no table.
func (a *Attacher) plain(job Job) (apart, plain bool) {
	apart = true
	if len(job.saves) > 0 {
		return false, false
	}
	for _, conf := range job.Network.Plugins {
		switch conf.Type {
		case "macvlan", "ipvlan", "dummy":
		case "ptp", "bridge", plugin.CalicoType, "portmap", "bandwidth", "firewall", "tuning":
			apart = false
		default: // unknown, or one that asks the kernel for what neighbours are about to change
			return false, false
		}
		if a.cfg.Planners[conf.Type] == nil {
			return false, false
		}
		typ, err := a.ipamType(conf)
		if err != nil || a.late(typ) {
			return false, false
		}
	}
	return apart, true
}

// undo undoes what was attached, backwards.
func (w *several) undo(ctx context.Context) error {
	var errs []error
	for _, r := range slices.Backward(w.runs) {
		if r.promised {
			errs = append(errs, w.a.abandon(ctx, r.rec, w.spaces))
		}
	}
	w.runs = nil
	return errors.Join(errs...)
}
