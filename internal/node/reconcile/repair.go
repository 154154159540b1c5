// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// count reports external changes since the last pass. Nothing is counted when facts are new, or when the last pass
// failed: then the kernel differs for another reason.
func (l *loop) count(ctx context.Context, now *model.Cluster) {
	if l.cfg.Repaired == nil || !l.sameToMesh(now) {
		return
	}
	all := state.Fragment{Owner: "mesh"}
	for _, f := range l.Status().Topology.Fragments() {
		all.Merge(f)
	}
	differences, err := kernel.Spaces{Host: l.cfg.Host}.Diff(ctx, all)
	if err != nil || len(differences) == 0 {
		return // the pass reports the error
	}
	things := make([]string, 0, len(differences))
	for _, d := range differences {
		things = append(things, d.Want)
	}
	l.cfg.Repaired(things)
}
