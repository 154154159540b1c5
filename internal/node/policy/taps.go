// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// cutTap forgets what a macvtap's rules remember and policies do not allow any more. Nobody tracks connections there.
func (e *Enforcer) cutTap(ctx context.Context, p policy.Place, at *kernel.Conn) error {
	var gone []state.Set
	var flows []policy.Flow
	for _, m := range policy.Memories() {
		known, err := at.Learnt(ctx, p.Family(), p.Table(), m.Set)
		if err != nil {
			return err
		}
		if denied, fs := e.barred(p, m, known); len(denied) > 0 {
			set := m.Set
			set.Elements = denied
			gone, flows = append(gone, set), append(flows, fs...)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := e.scar(ctx, p, flows); err != nil {
		return err
	}
	if err := at.Unlearn(ctx, p.Family(), p.Table(), gone...); err != nil {
		return err
	}
	e.log.Info("connections at a macvtap are cut that policies do not allow any more", "pod", p.Pod.String(),
		"interface", p.Tap, "count", len(flows))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Cut += uint64(len(flows))
	return nil
}

// barred are those elements of a set that policy is against now, and the flows that they are.
func (e *Enforcer) barred(
	p policy.Place, m policy.Memory, known []state.Element,
) (gone []state.Element, flows []policy.Flow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, el := range known {
		if f, ok := m.Flow(el); ok && e.index.Barred(p, f, m.Out) {
			gone, flows = append(gone, el), append(flows, f)
		}
	}
	return gone, flows
}

// barTap has a macvtap be down while its policies cannot be written, and up again when they are. It is the turn of who
// writes in pods.
func (e *Enforcer) barTap(ctx context.Context, p policy.Place, at *place, closed bool) {
	e.mu.Lock()
	if p.Tap == "" || at.conn == nil || !closed && at.unbarred {
		e.mu.Unlock()
		return
	}
	at.barred = closed
	var names []string
	for q, o := range e.places { // the pod may have several
		if q.Tap != "" && o.barred && o.id == at.id {
			names = append(names, q.Tap)
		}
	}
	conn := at.conn
	e.mu.Unlock()
	down, up, err := conn.Bar(context.WithoutCancel(ctx), names)
	switch {
	case err != nil:
		e.log.Error("macvtap cannot be closed, or opened again", "pod", p.Pod.String(), "interface", p.Tap, "err", err)
	case len(down) > 0:
		e.log.Error("macvtap is closed: policies select the pod, and cannot be written there", "pod", p.Pod.String(),
			"interface", p.Tap, "hint", untapped)
	case len(up) > 0:
		e.log.Info("macvtap is open again, with its policies", "pod", p.Pod.String(), "interface", p.Tap)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at.unbarred = err == nil && !closed
}
