// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/vm/phase1"
)

// watched reports whether a VM is polled: it is in a foreign pod, whose end is not reported; its guest is joined to the
// pod's link, which no event covers; or it could not be undone when its attachment ended.
func watched(r phase1.Record) bool { return r.Container == "" || len(r.Joins()) > 0 || r.Unfinished() }

// watchList returns the VMs to poll.
func (m *Registry) watchList() (out []phase1.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, records := range m.bySandbox {
		for _, r := range records {
			if watched(r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// watch polls VMs until there are none to watch.
func (m *Registry) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.cfg.After(watchEvery):
		}
		for _, r := range m.watchList() {
			if err := m.inspect(ctx, r); err != nil && ctx.Err() == nil {
				m.cfg.Log.Warn("VM cannot be checked", "vm", r.VM, "err", err)
			}
		}
		m.mu.Lock()
		some := false
		for _, records := range m.bySandbox {
			some = some || slices.ContainsFunc(records, watched)
		}
		if m.watching = some; !some {
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}

// inspect releases the VM of a foreign pod that is gone, retries a failed undo, and repairs joins.
func (m *Registry) inspect(ctx context.Context, r phase1.Record) error {
	release, err := m.cfg.LockSandbox(ctx, lockOf(r))
	if err != nil {
		return err
	}
	defer release()
	i := slices.IndexFunc(
		m.inSandbox(r.Container),
		func(o phase1.Record) bool { return o.VM == r.VM && o.PodID == r.PodID },
	)
	if i < 0 { // released since
		return nil
	}
	r = m.inSandbox(r.Container)[i]
	ns, err := m.open(r)
	switch {
	case err != nil && (r.Container == "" || r.Unfinished()):
		return m.releaseGone(ctx, r)
	case err != nil: // the DEL of its attachment undoes it
		return nil
	}
	defer func() { _ = ns.Close() }()
	if r.Unfinished() {
		return m.undo(ctx, r, ns, unfinished)
	}
	repaired, err := phase1.Rejoin(ctx, ns, r.Joins())
	if len(repaired) > 0 && err == nil {
		m.cfg.Log.Warn("join of the guest's tap was removed externally; repaired it", "vm", r.VM,
			"join", repaired[0].Want)
	}
	return err
}
