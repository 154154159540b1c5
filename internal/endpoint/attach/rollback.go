// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

const (
	// undoTime bounds the undo of a failed or canceled ADD, independently of the caller's deadline.
	undoTime = 30 * time.Second
	// lateUndoTime bounds the undo of an ADD that exceeded its deadline: its caller waits only a few seconds more for the
	// error. What is not undone then, because a plugin hangs, is undone by the DEL that follows.
	lateUndoTime = 3 * time.Second
)

// rollback undoes the acts of a record: after a failed ADD, at DEL, in GC and at recovery.
type rollback struct {
	host      *kernel.Conn
	boot      string
	locks     *lockSet
	records   *notifyingStore
	catalog   *catalog
	delegates *delegator
	vms       *podVMs
	hook      *policyHook
	agent     bool // shared objects are removed with their last owner
	reaper    *kernel.Reaper
	log       *slog.Logger
	fail      failpoint.Hook
}

// abandon undoes an unfinished attachment and deletes its record: its own objects under the shared lock, then, under
// the exclusive lock, shared objects that it created.
func (u *rollback) abandon(ctx context.Context, rec Record, spaces kernel.Spaces) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := locked(ctx, u.locks.of(rec.Request.Network).RLock, func() error {
		return u.undo(ctx, rec, spaces, spaces.Remove)
	}); err != nil {
		return fmt.Errorf("undo of %s: %w", rec.Key(), err)
	}
	if shared, any := u.sharedObjects(rec); any {
		err := locked(ctx, u.locks.main.Lock, func() error { return u.removeShared(ctx, shared) })
		if err != nil {
			return fmt.Errorf("undo of %s: %w", rec.Key(), err)
		}
	}
	return u.records.forget(rec.Key())
}

// removeShared removes unused shared objects. The caller holds the exclusive lock.
func (u *rollback) removeShared(ctx context.Context, f state.Fragment) error {
	if err := u.fail.At("before shared"); err != nil {
		return err
	}
	if err := (kernel.Spaces{Host: u.host}).RemoveShared(ctx, f); err != nil {
		return err
	}
	return u.fail.At("after shared")
}

// undo undoes a record's acts in reverse. take is Remove, if everything must be gone at the end, or Release. It
// continues after an error and is idempotent.
func (u *rollback) undo(
	ctx context.Context, rec Record, spaces kernel.Spaces, take func(context.Context, state.Fragment) error,
) error {
	var errs []error
	u.vms.leave(ctx, rec, spaces)
	for _, act := range slices.Backward(rec.Acts) {
		if err := u.fail.At("before undo " + string(act.Kind)); err != nil {
			return err
		}
		err := u.undoAct(ctx, rec, act, spaces, take)
		if err == nil {
			err = u.fail.At("after undo " + string(act.Kind))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return u.hook.release(ctx, rec)
	}
	return errors.Join(errs...)
}

func (u *rollback) undoAct(
	ctx context.Context, rec Record, act Act, spaces kernel.Spaces, take func(context.Context, state.Fragment) error,
) error {
	if act.Kind == ActApply {
		if rec.Boot != u.boot {
			return removeFiles(act.Files) // The rest is gone since the reboot.
		}
		return u.undoApply(ctx, rec, act, spaces, take)
	}
	if act.Kind == ActSave {
		return removeFiles(act.Files)
	}
	if act.Plugin >= len(rec.Network.Plugins) {
		return fmt.Errorf("record %s: act of plugin %d of %d", rec.Key(), act.Plugin, len(rec.Network.Plugins))
	}
	conf := rec.Network.Plugins[act.Plugin]
	if act.Kind == ActExec {
		return u.delegates.del(ctx, rec.Network, rec.Request, conf, conf.Type, rec.Result)
	}
	typ, err := u.catalog.ipamType(conf)
	if err != nil {
		return err
	}
	if alloc := u.catalog.allocators[typ]; alloc != nil {
		q := allocateRequest(rec.Request, conf)
		for _, ip := range act.IPs {
			q.Held = append(q.Held, ip.Address.Addr())
		}
		return alloc.Del(ctx, q)
	}
	return u.delegates.del(ctx, rec.Network, rec.Request, conf, typ, rec.Result)
}

// undoApply removes what an act applied and restores the state before it. A failure on the node fails the undo, which
// is retried. A failure in the container is only logged, because the container is about to be deleted.
func (u *rollback) undoApply(
	ctx context.Context, rec Record, act Act, spaces kernel.Spaces, take func(context.Context, state.Fragment) error,
) error {
	if err := take(ctx, *act.Fragment); err != nil {
		return err
	}
	if act.Restore == nil {
		return removeFiles(act.Files)
	}
	if err := u.fail.At("before restore"); err != nil {
		return err
	}
	pod := state.Fragment{Owner: act.Restore.Owner, Pod: act.Restore.Pod}
	if err := spaces.Restore(ctx, pod); err != nil {
		u.log.Warn("state before the attachment cannot be restored in the container",
			"attachment", rec.Key().String(), "err", err)
	}
	host := state.Fragment{Owner: act.Restore.Owner, Host: act.Restore.Host}
	if err := spaces.Restore(ctx, host); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := u.fail.At("after restore"); err != nil {
		return err
	}
	return removeFiles(act.Files)
}

// sharedObjects returns the shared objects that the undo of a record may remove. Of an unfinished ADD these are the
// links that it created. Of a finished one these are all links in an agent, and none standalone, where a bridge stays
// as with the reference plugin. Tables are always included: one with elements of others is kept.
func (u *rollback) sharedObjects(rec Record) (state.Fragment, bool) {
	var out state.Fragment
	for _, act := range rec.Acts {
		if act.Fragment == nil {
			continue
		}
		out.Owner = act.Fragment.Owner
		for _, l := range act.Fragment.Host.Links {
			mine := rec.Stage != Pending && u.agent || rec.Stage == Pending && slices.Contains(act.NewLinks, l.Name)
			if l.Shared && mine {
				out.Host.Links = append(out.Host.Links, l)
			}
		}
		out.Host.Tables = append(out.Host.Tables, sharedTables(*act.Fragment)...)
		if act.Published != nil {
			out.Host.Tables = append(out.Host.Tables, act.Published.Tables...)
		}
	}
	return out, len(out.Host.Links)+len(out.Host.Tables) > 0
}

// finish waits until the links of released records are gone, removes shared objects and deletes the records; records
// that cannot be deleted stay. The caller holds the exclusive lock.
func (u *rollback) finish(ctx context.Context, undone []Record) (forgotten []Record, err error) {
	if err := u.reap(ctx); err != nil {
		return nil, err
	}
	var shared state.Fragment
	for _, rec := range undone {
		if f, any := u.sharedObjects(rec); any && rec.Boot == u.boot {
			shared.Merge(f)
		}
	}
	if !shared.Host.Empty() {
		if err := u.removeShared(ctx, shared); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, rec := range undone {
		if err := u.records.forget(rec.Key()); err != nil {
			errs = append(errs, err)
			continue
		}
		forgotten = append(forgotten, rec)
	}
	return forgotten, errors.Join(errs...)
}

// reap waits until no dead link is left. Deleting a hundred links at once takes as long as deleting one, so a
// standalone plugin with many links starts a reaper too.
func (u *rollback) reap(ctx context.Context) (err error) {
	reaper := u.reaper
	if reaper == nil {
		var stop context.CancelFunc
		var run context.Context
		run, stop = context.WithCancel(ctx)
		reaper = kernel.NewReaper(u.host, u.log)
		done := make(chan error, 1)
		go func() { done <- reaper.Run(run) }()
		defer func() { stop(); err = errors.Join(err, <-done) }()
	}
	reaper.Kick()
	if err := reaper.Wait(ctx); err != nil {
		return fmt.Errorf("dead links: %w", err)
	}
	return nil
}

// detached returns a context for work that must be finished after the caller's context ends.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := undoTime
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		limit = lateUndoTime
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// removeMarked removes all objects in the node's namespace whose mark is chosen: links, if requested, by their alias,
// and elements of weft's nftables tables by their comment. Several links are deleted at once.
func (u *rollback) removeMarked(ctx context.Context, links bool, choose func(mark string) bool) error {
	have, err := u.host.ReadAll(ctx)
	if err != nil {
		return err
	}
	marked := func(mark string) bool {
		return strings.HasPrefix(mark, MarkPrefix) && mark != plugin.SharedMark && choose(mark)
	}
	var f state.Fragment
	for _, l := range have.Links {
		if links && marked(l.Alias) && l.Kind != "" {
			f.Host.Links = append(f.Host.Links, state.Link{Name: l.Name, Kind: l.Kind})
		}
	}
	for _, t := range have.Tables {
		part := state.Table{Family: t.Family, Name: t.Name, Shared: true}
		for _, s := range t.Sets {
			if chosen := chosenElements(s, marked); len(chosen.Elements) > 0 {
				part.Sets = append(part.Sets, chosen)
			}
		}
		if len(part.Sets) > 0 {
			f.Host.Tables = append(f.Host.Tables, part)
		}
	}
	if f.Host.Empty() {
		return nil
	}
	f.Owner = "marked"
	spaces := kernel.Spaces{Host: u.host}
	if len(f.Host.Links) < 2 {
		return spaces.Remove(ctx, f)
	}
	if err := spaces.Release(ctx, f); err != nil {
		return err
	}
	return u.reap(ctx)
}
