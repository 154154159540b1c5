// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/foreign"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// run is one ADD under way.
type run struct {
	a        *Attacher
	job      Job
	spaces   kernel.Spaces
	rec      Record
	promised bool     // the record has been written
	guarded  *Guarded // what the guard has been told
	hold     ipam.Hold
	chain    plugin.Chain

	// For a run that is done together with others: its place among the jobs, where its IPAM acts begin and their types, what
	// they gave, and what is known of the kernel already.
	index int
	first int
	types map[int]string
	given map[int]*model.Result
	known state.Answers

	// turn is held while built-in plugins are planned and applied, where other networks of the pod are attached at the same
	// time: what one planner sees of the pod must still be true when its plan is applied.
	turn sync.Locker
}

// beside runs the list beside the calls for other containers.
func (r *run) beside(ctx context.Context) error {
	release, err := r.a.locks(r.job.Request.Network).Together(ctx)
	if err != nil {
		return err
	}
	defer release()
	defer r.drop()
	return r.list(ctx)
}

// list goes through the plugins: the built-in ones up to the next cut are planned and applied in one.
func (r *run) list(ctx context.Context) error {
	r.chain.Prev = r.job.Prev
	if err := r.save(); err != nil {
		return err
	}
	plugins := r.job.Network.Plugins
	for i := 0; i < len(plugins); {
		next := i + 1
		if r.a.cfg.Planners[plugins[i].Type] == nil {
			if err := r.exec(ctx, i); err != nil {
				return err
			}
		} else {
			var err error
			if next, err = r.cut(i); err != nil {
				return err
			}
			if err := r.builtins(ctx, i, next); err != nil {
				return err
			}
		}
		i = next
	}
	if r.chain.Prev == nil {
		r.chain.Prev = &model.Result{}
	}
	r.rec.Result = r.chain.Prev
	if err := r.look(ctx); err != nil {
		return err
	}
	if err := r.a.guard(ctx, r); err != nil {
		return err
	}
	if err := r.finish(); err != nil {
		return err
	}
	r.a.attached(r)
	r.a.mark(r.rec)
	r.a.moved(r.rec)
	return nil
}

// cut is where the built-in plugins that begin at i must stop: before a foreign plugin, or one whose IPAM needs the
// interface and is asked between two acts.
func (r *run) cut(i int) (int, error) {
	plugins := r.job.Network.Plugins
	j := i + 1
	for ; j < len(plugins) && r.a.cfg.Planners[plugins[j].Type] != nil; j++ {
		typ, err := r.a.ipamType(plugins[j])
		if err != nil {
			return 0, err
		}
		if r.a.late(typ) {
			break
		}
	}
	return j, nil
}

// promise writes the record. The name is the step's, for fault tests.
func (r *run) promise(name string) error {
	return r.write(name, func() error {
		if err := r.a.put(r.rec); err != nil {
			return err
		}
		r.promised = true
		return nil
	})
}

// finish writes that the attachment is done. r.rec stays pending: should this fail, its undo is that of an unfinished ADD.
func (r *run) finish() error {
	return r.write("done", func() error {
		done := r.rec
		done.Stage = Done
		err := r.a.put(done)
		r.promised = r.promised || err == nil
		return err
	})
}

func (r *run) write(name string, put func() error) error {
	if err := r.a.step("before " + name); err != nil {
		return err
	}
	if err := put(); err != nil {
		return err
	}
	return r.a.step("after " + name)
}

// builtins gets the addresses of the plugins from i to j, plans them, and applies the plan. Where the addresses need the
// interface, that is made before.
func (r *run) builtins(ctx context.Context, i, j int) error {
	if r.turn != nil {
		r.turn.Lock()
		defer r.turn.Unlock()
	}
	r.chain.Open = state.Fragment{}
	first, err := r.link(ctx, i)
	if err != nil {
		return err
	}
	given, err := r.addresses(ctx, i, j)
	if err != nil {
		return err
	}
	act, err := r.plan(ctx, i, j, given, first)
	if err != nil {
		return err
	}
	r.rec.Result = r.chain.Prev
	return r.apply(ctx, "plan", act)
}

// apply promises an act and does it. The name is the promise's, for fault tests.
func (r *run) apply(ctx context.Context, name string, act Act) error {
	r.rec.Acts = append(r.rec.Acts, act)
	if err := r.promise("promise " + name); err != nil {
		return err
	}
	if err := r.a.unshared(ctx, r); err != nil {
		return err
	}
	if err := r.a.guard(ctx, r); err != nil {
		return err
	}
	return r.perform(ctx, *act.Fragment, act.Files)
}

// perform applies what was promised.
func (r *run) perform(ctx context.Context, f state.Fragment, files []plugin.File) error {
	if err := writeFiles(files); err != nil {
		return err
	}
	kept, err := r.keep()
	if err != nil {
		return err
	}
	err = r.spaces.Apply(ctx, f)
	if keepErr := kept(); keepErr != nil {
		return keepErr
	}
	if errors.Is(err, kernel.ErrFull) && r.a.cfg.Reaper != nil {
		// The dead keep their place until they are gone.
		if err = r.a.cfg.Reaper.Wait(ctx); err == nil {
			err = r.spaces.Apply(ctx, f)
		}
	}
	if fault := ofPorts(err); fault != nil {
		return fault
	}
	if fault := ofMAC(err, r.job.Network.Name, f); fault != nil {
		return fault
	}
	if errors.Is(err, kernel.ErrFull) {
		return model.Faultf(model.CodeTryAgain, "a bridge holds 1,023 ports: use several bridges on this node, or ptp",
			"network %q: %w", r.job.Network.Name, err)
	}
	if errors.Is(err, kernel.ErrUsed) {
		return model.Faultf(model.CodeInvalidConf, "choose another master or VLAN", "network %q: %w", r.job.Network.Name, err)
	}
	if errors.Is(err, kernel.ErrNoVlans) {
		return model.Faultf(model.CodeInvalidConf, "leave vlan and vlanTrunk out, or boot a kernel with CONFIG_BRIDGE_VLAN_FILTERING",
			"network %q: %w", r.job.Network.Name, err)
	}
	if err != nil {
		return fmt.Errorf("network %q: %w", r.job.Network.Name, err)
	}
	return r.a.step("after apply")
}

// exec executes the foreign plugin i at its place in the list. Its answer is a fact for those behind it.
func (r *run) exec(ctx context.Context, i int) error {
	r.rec.Acts = append(r.rec.Acts, Act{Kind: ActExec, Plugin: i})
	r.rec.Result = r.chain.Prev
	if err := r.promise("promise exec"); err != nil {
		return err
	}
	if err := r.a.guard(ctx, r); err != nil {
		return err
	}
	conf := r.job.Network.Plugins[i]
	result, err := r.execute(ctx, conf, conf.Type, r.chain.Prev)
	if err != nil {
		return err
	}
	r.chain.Prev = &result
	return r.a.step("after exec")
}

func (r *run) execute(ctx context.Context, conf model.PluginConf, typ string, prev *model.Result) (model.Result, error) {
	stdin, err := cni.WithPrev(conf, r.job.Network.CNIVersion, prev)
	if err != nil {
		return model.Result{}, err
	}
	out, err := r.a.cfg.Exec.Run(ctx, foreign.Call{Verb: cni.Add, Type: typ, Request: r.job.Request, Conf: stdin})
	if err != nil {
		return model.Result{}, err
	}
	result, err := cni.ParseResult(out)
	if err != nil {
		return result, fmt.Errorf("plugin %s ADD: %w", typ, err)
	}
	return result, nil
}
