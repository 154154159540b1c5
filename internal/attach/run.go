// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/foreign"
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
	promised bool // the record has been written
	chain    plugin.Chain

	// For a run that is done together with others: its place among the jobs, where its IPAM acts begin and their types, what
	// they gave, and what is known of the kernel already.
	index int
	first int
	types map[int]string
	given map[int]*model.Result
	known state.Answers
}

// beside runs the list beside the calls for other containers.
func (r *run) beside(ctx context.Context) error {
	release, err := r.a.cfg.Locks.Together(ctx)
	if err != nil {
		return err
	}
	defer release()
	return r.list(ctx)
}

// list goes through the plugins: the built-in ones up to the next cut are planned and applied in one.
func (r *run) list(ctx context.Context) error {
	r.chain.Prev = r.job.Prev
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
	done := r.rec
	done.Stage = Done // r.rec stays pending: should this fail, its undo is that of an unfinished ADD
	return r.write("done", done)
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
func (r *run) promise(name string) error { return r.write(name, r.rec) }

func (r *run) write(name string, rec Record) error {
	if err := r.a.step("before " + name); err != nil {
		return err
	}
	if err := r.a.put(rec); err != nil {
		return err
	}
	r.promised = true
	return r.a.step("after " + name)
}

// builtins gets the addresses of the plugins from i to j, plans them, and applies the plan. Where the addresses need the
// interface, that is made before.
func (r *run) builtins(ctx context.Context, i, j int) error {
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
	return r.perform(ctx, *act.Fragment, act.Files)
}

// perform applies what was promised.
func (r *run) perform(ctx context.Context, f state.Fragment, files []plugin.File) error {
	if err := writeFiles(files); err != nil {
		return err
	}
	err := r.spaces.Apply(ctx, f)
	if errors.Is(err, kernel.ErrFull) && r.a.cfg.Reaper != nil {
		// The dead keep their place until they are gone.
		if err = r.a.cfg.Reaper.Wait(ctx); err == nil {
			err = r.spaces.Apply(ctx, f)
		}
	}
	if fault := ofPorts(err); fault != nil {
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

// addresses asks the IPAM sections of the plugins. They are promised before, all in one, because what is given can be
// given back by its owner's name alone.
func (r *run) addresses(ctx context.Context, i, j int) (map[int]*model.Result, error) {
	first := len(r.rec.Acts)
	types, err := r.ipamActs(i, j)
	if err != nil || len(types) == 0 {
		return nil, err
	}
	if err := r.promise("promise addresses"); err != nil {
		return nil, err
	}
	return r.allocateAll(ctx, first, types)
}

// ipamActs adds the acts of the IPAM sections of the plugins from i to j, and gives their types.
func (r *run) ipamActs(i, j int) (map[int]string, error) {
	types := map[int]string{}
	for k := i; k < j; k++ {
		typ, err := r.a.ipamType(r.job.Network.Plugins[k])
		if err != nil {
			return nil, err
		}
		if typ != "" {
			types[k] = typ
			r.rec.Acts = append(r.rec.Acts, Act{Kind: ActIPAM, Plugin: k})
		}
	}
	return types, nil
}

// allocateAll does the promised IPAM acts from first on.
func (r *run) allocateAll(ctx context.Context, first int, types map[int]string) (map[int]*model.Result, error) {
	given := map[int]*model.Result{}
	for n := first; n < len(r.rec.Acts); n++ {
		k := r.rec.Acts[n].Plugin
		result, err := r.allocate(ctx, k, types[k])
		if err != nil {
			if r.a.cfg.Allocators[types[k]] != nil {
				// It gave nothing, so nothing is to be given back, least of all what an earlier ADD has.
				r.rec.Acts = r.rec.Acts[:n]
			} else {
				r.rec.Acts = r.rec.Acts[:n+1]
			}
			return nil, err
		}
		r.rec.Acts[n].IPs = result.IPs
		given[k] = &result
		if err := r.a.step("after ipam"); err != nil {
			return nil, err
		}
	}
	return given, r.rested(ctx, given)
}

func (r *run) allocate(ctx context.Context, k int, typ string) (model.Result, error) {
	conf := r.job.Network.Plugins[k]
	if alloc := r.a.cfg.Allocators[typ]; alloc != nil {
		return alloc.Add(ctx, ask(r.job.Request, conf))
	}
	return r.execute(ctx, conf, typ, r.chain.Prev)
}

// rested waits until no dead link has one of the addresses any more.
func (r *run) rested(ctx context.Context, given map[int]*model.Result) error {
	if r.a.cfg.Reaper == nil {
		return nil
	}
	var addrs []netip.Addr
	for _, result := range given {
		for _, ip := range result.IPs {
			addrs = append(addrs, ip.Address.Addr())
		}
	}
	if !r.a.mourn.rests(r.job.Request.Network, addrs) {
		return nil
	}
	return r.a.cfg.Reaper.Wait(ctx)
}

// exec executes the foreign plugin i at its place in the list. Its answer is a fact for those behind it.
func (r *run) exec(ctx context.Context, i int) error {
	r.rec.Acts = append(r.rec.Acts, Act{Kind: ActExec, Plugin: i})
	r.rec.Result = r.chain.Prev
	if err := r.promise("promise exec"); err != nil {
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
