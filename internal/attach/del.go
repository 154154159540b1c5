// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"sync"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// Del undoes an attachment. It works from the record alone: neither the namespace nor the configuration of the call is
// needed. Without a record it does what the configuration lets it find. Nothing to undo is no error.
func (a *Attacher) Del(ctx context.Context, job Job) error {
	if _, err := a.netnsID(job); err != nil {
		return err
	}
	release, err := a.locks(job.Request.Network).Container(ctx, job.Request.ContainerID)
	if err != nil {
		return err
	}
	defer release()
	gate, err := a.locks(job.Request.Network).Together(ctx)
	if err != nil {
		return err
	}
	gate = sync.OnceFunc(gate)
	defer gate()
	rec, found, err := a.cfg.Memory.Get(job.Request.Key())
	if err != nil {
		return err
	}
	if !found {
		err := a.deriveUnfolded(ctx, job)
		gate()
		a.tidyTables(ctx, plugin.SharedTables())
		return err
	}
	spaces, done := a.delSpaces(job, rec)
	defer done()
	if rec.Stage == Pending {
		gate()
		return a.abandon(ctx, rec, spaces)
	}
	tables, err := a.release(ctx, rec, spaces)
	gate()
	if err == nil && len(tables) > 0 {
		a.tidyTables(ctx, tables)
	}
	return err
}

// delSpaces prefers the namespace that the caller has open.
func (a *Attacher) delSpaces(job Job, rec Record) (kernel.Spaces, func()) {
	if job.Netns != nil {
		if id, err := job.Netns.ID(); err == nil && id == rec.NetnsID {
			if s, done, err := a.spaces(job.Netns); err == nil {
				return s, done
			}
		}
	}
	return a.recordSpaces(rec)
}

// release undoes a finished attachment: as a DEL, that is fast where a reaper runs. It gives the shared tables that nobody
// else will look after.
func (a *Attacher) release(ctx context.Context, rec Record, spaces kernel.Spaces) ([]state.Table, error) {
	if err := a.step("before releasing"); err != nil {
		return nil, err
	}
	if rec.Stage == Done {
		rec.Stage = Releasing
		if err := a.put(rec); err != nil {
			// A memory that cannot be written is no reason to keep the address and the links.
			a.cfg.Log.Warn("record is not marked as releasing", "attachment", rec.Key().String(), "err", err)
		}
	}
	if err := a.step("after releasing"); err != nil {
		return nil, err
	}
	if a.cfg.Reaper == nil {
		if err := a.undo(ctx, rec, spaces, spaces.Remove); err != nil {
			return nil, err
		}
		return sharedTables(rec.Fragment()), a.forget(rec.Key())
	}
	a.mourn.rest(rec.Request.Network, addresses(rec))
	if err := a.undo(ctx, rec, spaces, spaces.Release); err != nil {
		a.mourn.rested(rec.Request.Network, addresses(rec))
		return nil, err
	}
	a.brought.drop(rec.Key())
	a.marked.drop(rec.Key())
	a.bury(rec)
	return nil, nil
}

// tidyTables takes tables without elements, when nobody else is busy: who is will do it. Errors do not matter to the DEL
// that is done.
func (a *Attacher) tidyTables(ctx context.Context, tables []state.Table) {
	locks, ok := a.cfg.Locks.(interface {
		TryAlone() (release func(), ok bool)
	})
	if !ok {
		return
	}
	release, ok := locks.TryAlone()
	if !ok {
		return
	}
	defer release()
	if err := a.removeShared(ctx, state.Fragment{Host: state.Space{Tables: tables}}); err != nil {
		a.cfg.Log.Warn("empty table stays", "err", err)
	}
}
