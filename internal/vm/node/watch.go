// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/vm/phase1"
)

// watched reports whether a machine is looked at now and then: one in a pod of others, which nobody tells of, one whose
// guest is joined to the pod's link, which nothing else would notice, and one that could not be undone when its
// attachment ended.
func watched(r phase1.Record) bool { return r.Container == "" || len(r.Joins()) > 0 || r.Unfinished() }

// toWatch are the machines that are looked at.
func (m *Machines) toWatch() (out []phase1.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, records := range m.in {
		for _, r := range records {
			if watched(r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// watch looks after machines until there are none to be watched.
func (m *Machines) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.cfg.After(watchEvery):
		}
		for _, r := range m.toWatch() {
			if err := m.look(ctx, r); err != nil && ctx.Err() == nil {
				m.cfg.Log.Warn("machine that was looked at", "machine", r.Machine, "err", err)
			}
		}
		m.mu.Lock()
		some := false
		for _, records := range m.in {
			some = some || slices.ContainsFunc(records, watched)
		}
		if m.watching = some; !some {
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}

// look forgets a machine of a pod of others if that has gone, undoes what should have been, and joins what somebody has
// cut.
func (m *Machines) look(ctx context.Context, r phase1.Record) error {
	release, err := m.cfg.Hold(ctx, turnOf(r))
	if err != nil {
		return err
	}
	defer release()
	i := slices.IndexFunc(m.of(r.Container), func(o phase1.Record) bool { return o.Machine == r.Machine && o.In == r.In })
	if i < 0 { // it has left meanwhile
		return nil
	}
	r = m.of(r.Container)[i]
	ns, err := m.open(r)
	switch {
	case err != nil && (r.Container == "" || r.Unfinished()):
		return m.lost(ctx, r)
	case err != nil: // its attachment goes, and takes it along
		return nil
	}
	defer func() { _ = ns.Close() }()
	if r.Unfinished() {
		return m.undo(ctx, r, ns, unfinished)
	}
	cut, err := phase1.Rejoin(ctx, ns, r.Joins())
	if len(cut) > 0 && err == nil {
		m.cfg.Log.Warn("a guest was cut off, and is joined to the pod's network again", "machine", r.Machine,
			"join", cut[0].Want)
	}
	return err
}
