// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
)

// count reports external changes since the last pass. Nothing is counted when facts are new, or when the last pass
// failed: then the kernel differs for another reason.
func (l *loop) count(ctx context.Context, now *model.Cluster) {
	if l.cfg.Repaired == nil || !l.sameToMesh(now) {
		return
	}
	var things []string
	for f := range halves(l.Status().Topology) {
		differences, err := kernel.Spaces{Host: l.cfg.Host}.Diff(ctx, f)
		if err != nil {
			return // the pass reports the error
		}
		for _, d := range differences {
			things = append(things, d.Want)
		}
	}
	if len(things) > 0 {
		l.cfg.Repaired(things)
	}
}
