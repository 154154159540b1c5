// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// macvtap is the kernel's name of a link by which a hypervisor speaks on another one.
const macvtap state.Kind = "macvtap"

// tapped finds out whether foreign plugins have made the interface a macvtap: then policy stands at that, before the ADD ends.
func (r *run) tapped(ctx context.Context) error {
	if r.a.cfg.Guard == nil || !slices.ContainsFunc(r.rec.Acts, func(a Act) bool { return a.Kind == ActExec }) {
		return nil
	}
	q := state.Query{Space: state.Pod, Link: r.job.Request.IfName}
	answers, err := r.spaces.Observe(ctx, []state.Query{q})
	if err != nil {
		return fmt.Errorf("network %q: %w", r.job.Network.Name, err)
	}
	if is := answers[q].Link.Kind == macvtap; is != r.rec.Tap {
		r.rec.Tap, r.current = is, false
	}
	return nil
}
