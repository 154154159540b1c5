// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// recordSpaces opens the namespaces of a record. The container's is left out when the path names another one by now: a
// link of that name there is somebody else's.
func (a *Attacher) recordSpaces(rec Record) (kernel.Spaces, func()) {
	alone := kernel.Spaces{Host: a.cfg.Host}
	if rec.Request.Netns == "" || rec.NetnsID == 0 || rec.Boot != a.cfg.Boot {
		return alone, func() {}
	}
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return alone, func() {}
	}
	id, err := ns.ID()
	if err != nil || id != rec.NetnsID {
		_ = ns.Close()
		return alone, func() {}
	}
	s, done, err := a.spaces(ns)
	if err != nil {
		_ = ns.Close()
		return alone, func() {}
	}
	return s, func() { done(); _ = ns.Close() }
}

// abandon undoes an unfinished attachment and forgets it: its own things beside other calls, then, alone, the shared ones
// that only it made.
func (a *Attacher) abandon(ctx context.Context, rec Record, spaces kernel.Spaces) error {
	ctx, cancel := patient(ctx)
	defer cancel()
	if err := a.locked(ctx, a.locks(rec.Request.Network).Together, func() error { return a.undo(ctx, rec, spaces, spaces.Remove) }); err != nil {
		return fmt.Errorf("undo of %s: %w", rec.Key(), err)
	}
	if shared, any := a.sharedOf(rec); any {
		err := a.locked(ctx, a.cfg.Locks.Alone, func() error { return a.removeShared(ctx, shared) })
		if err != nil {
			return fmt.Errorf("undo of %s: %w", rec.Key(), err)
		}
	}
	return a.forget(rec.Key())
}

// locked does f while holding a lock.
func (a *Attacher) locked(ctx context.Context, lock func(context.Context) (func(), error), f func() error) error {
	release, err := lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	return f()
}

// removeShared takes shared objects that nobody uses. The caller is alone.
func (a *Attacher) removeShared(ctx context.Context, f state.Fragment) error {
	if err := a.step("before shared"); err != nil {
		return err
	}
	if err := (kernel.Spaces{Host: a.cfg.Host}).RemoveShared(ctx, f); err != nil {
		return err
	}
	return a.step("after shared")
}

// undo undoes a record's acts in reverse. take is Remove, when everything must be gone at the end, or Release. It goes on
// after an error; all of it can be done again.
func (a *Attacher) undo(ctx context.Context, rec Record, spaces kernel.Spaces, take func(context.Context, state.Fragment) error) error {
	var errs []error
	a.machineLeaves(ctx, rec, spaces)
	for _, act := range slices.Backward(rec.Acts) {
		if err := a.step("before undo " + string(act.Kind)); err != nil {
			return err
		}
		err := a.undoAct(ctx, rec, act, spaces, take)
		if err == nil {
			err = a.step("after undo " + string(act.Kind))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return a.unguard(ctx, rec)
	}
	return errors.Join(errs...)
}

func (a *Attacher) undoAct(ctx context.Context, rec Record, act Act, spaces kernel.Spaces, take func(context.Context, state.Fragment) error) error {
	if act.Kind == ActApply {
		if rec.Boot != a.cfg.Boot {
			return removeFiles(act.Files) // All else went with the machine's last run.
		}
		return a.takeBack(ctx, rec, act, spaces, take)
	}
	if act.Kind == ActSave {
		return removeFiles(act.Files)
	}
	if act.Plugin >= len(rec.Network.Plugins) {
		return fmt.Errorf("record %s: act of plugin %d of %d", rec.Key(), act.Plugin, len(rec.Network.Plugins))
	}
	conf := rec.Network.Plugins[act.Plugin]
	if act.Kind == ActExec {
		return a.foreignDel(ctx, rec.Network, rec.Request, conf, conf.Type, rec.Result)
	}
	typ, err := a.ipamType(conf)
	if err != nil {
		return err
	}
	if alloc := a.cfg.Allocators[typ]; alloc != nil {
		q := ask(rec.Request, conf)
		for _, ip := range act.IPs {
			q.Held = append(q.Held, ip.Address.Addr())
		}
		return alloc.Del(ctx, q)
	}
	return a.foreignDel(ctx, rec.Network, rec.Request, conf, typ, rec.Result)
}

// takeBack removes what an act applied and gives back what was there before. Of the node's things an error is the undo's:
// it is done again. What is in a container is about to end, so it is no reason to keep it from ending.
func (a *Attacher) takeBack(ctx context.Context, rec Record, act Act, spaces kernel.Spaces, take func(context.Context, state.Fragment) error) error {
	if err := take(ctx, *act.Fragment); err != nil {
		return err
	}
	if act.Restore == nil {
		return removeFiles(act.Files)
	}
	if err := a.step("before restore"); err != nil {
		return err
	}
	pod := state.Fragment{Owner: act.Restore.Owner, Pod: act.Restore.Pod}
	if err := spaces.Restore(ctx, pod); err != nil {
		a.cfg.Log.Warn("container is not as it was", "attachment", rec.Key().String(), "err", err)
	}
	host := state.Fragment{Owner: act.Restore.Owner, Host: act.Restore.Host}
	if err := spaces.Restore(ctx, host); err != nil {
		return fmt.Errorf("give back: %w", err)
	}
	if err := a.step("after restore"); err != nil {
		return err
	}
	return removeFiles(act.Files)
}

// foreignDel executes the DEL of a foreign plugin with the last result known.
func (a *Attacher) foreignDel(ctx context.Context, n model.Network, r model.Request, conf model.PluginConf, typ string, prev *model.Result) error {
	if !cni.AtLeast(n.CNIVersion, "0.4.0") {
		prev = nil
	}
	stdin, err := cni.WithPrev(conf, n.CNIVersion, prev)
	if err != nil {
		return err
	}
	_, err = a.cfg.Exec.Run(ctx, foreign.Call{Verb: cni.Del, Type: typ, Request: r, Conf: stdin})
	return err
}

// sharedOf are the shared objects that the undo of a record may take. Of an unfinished ADD that is what it found missing;
// of a finished one everything, in an agent, and no link standalone, where a bridge stays as it does with the reference
// plugin. A table is left where others have elements, so it is always tried.
func (a *Attacher) sharedOf(rec Record) (state.Fragment, bool) {
	var out state.Fragment
	for _, act := range rec.Acts {
		if act.Fragment == nil {
			continue
		}
		out.Owner = act.Fragment.Owner
		for _, l := range act.Fragment.Host.Links {
			mine := rec.Stage != Pending && a.cfg.Reaper != nil || rec.Stage == Pending && slices.Contains(act.Fresh, l.Name)
			if l.Shared && mine {
				out.Host.Links = append(out.Host.Links, l)
			}
		}
		out.Host.Tables = append(out.Host.Tables, sharedTables(*act.Fragment)...)
	}
	return out, len(out.Host.Links)+len(out.Host.Tables) > 0
}

func sharedTables(f state.Fragment) []state.Table {
	var out []state.Table
	for _, t := range f.Host.Tables {
		if t.Shared {
			out = append(out, t)
		}
	}
	return out
}

// addresses are what a record's acts were given.
func addresses(rec Record) []netip.Addr {
	var out []netip.Addr
	for _, act := range rec.Acts {
		for _, ip := range act.IPs {
			out = append(out, ip.Address.Addr())
		}
	}
	return out
}
