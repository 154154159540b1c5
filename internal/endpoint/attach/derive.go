// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/endpoint/leftover"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// derive undoes an attachment that nothing is recorded of: what the configuration and the marks lead to. It goes on after
// an error.
func (a *Attacher) derive(ctx context.Context, job Job) error {
	var errs []error
	whole := false // a list that does not make the interface is a part of one, and the interface another part's
	for _, conf := range slices.Backward(job.Network.Plugins) {
		p := a.cfg.Planners[conf.Type]
		if p == nil {
			errs = append(errs, a.foreignDel(ctx, job.Network, job.Request, conf, conf.Type, job.Prev))
			continue
		}
		typ, err := a.ipamType(conf)
		if err != nil {
			a.cfg.Log.Warn("no address is released: the ipam section is not valid", "network", job.Network.Name, "plugin", conf.Type, "err", err)
		}
		if a.late(typ) { // it may need the interface to give the addresses back
			errs = append(errs, a.deriveIPAM(ctx, job, conf, typ))
		}
		errs = append(errs, a.traces(ctx, job, conf))
		if p.Capabilities().MakesInterface {
			whole = true
			errs = append(errs, a.takeInterface(ctx, job))
		}
		if !a.late(typ) {
			errs = append(errs, a.deriveIPAM(ctx, job, conf, typ))
		}
	}
	key := job.Request.Key()
	errs = append(errs, leftover.Take(ctx, a.cfg.Host, a.builtinTypes(job), leftover.Scope{Network: key.Network, Key: &key}))
	mark := plugin.Mark(key)
	return errors.Join(append(errs, a.takeMarked(ctx, whole, func(m string) bool { return sameMark(m, mark) }))...)
}

// builtinTypes are the types of the job's plugins that are built in: what a foreign one left is that one's to take.
func (a *Attacher) builtinTypes(job Job) []string {
	var types []string
	for _, conf := range job.Network.Plugins {
		if a.cfg.Planners[conf.Type] != nil {
			types = append(types, conf.Type)
		}
	}
	return types
}

func (a *Attacher) deriveIPAM(ctx context.Context, job Job, conf model.PluginConf, typ string) error {
	if typ == "" {
		return nil
	}
	if alloc := a.cfg.Allocators[typ]; alloc != nil {
		return alloc.Del(ctx, ask(job.Request, conf))
	}
	return a.foreignDel(ctx, job.Network, job.Request, conf, typ, job.Prev)
}

// interfaceKinds are the kinds of the interfaces that plugins make.
func interfaceKinds() []state.Kind {
	return []state.Kind{state.Veth, state.Macvlan, state.Ipvlan, state.Vlan, state.Dummy, state.Tap}
}

// takeInterface deletes the container's interface, which a virtual link's other end follows.
func (a *Attacher) takeInterface(ctx context.Context, job Job) error {
	if job.Netns == nil {
		return nil
	}
	spaces, done, err := a.spaces(job.Netns)
	if err != nil {
		return err
	}
	defer done()
	q := state.Query{Space: state.Pod, Link: job.Request.IfName}
	answers, err := spaces.Observe(ctx, []state.Query{q})
	kind := answers[q].Link.Kind
	if err != nil || !slices.Contains(interfaceKinds(), kind) {
		return err
	}
	link := state.Link{Name: job.Request.IfName, Kind: kind}
	return spaces.Remove(ctx, state.Fragment{Owner: plugin.Owner(job.Request.Key()), Pod: state.Space{Links: []state.Link{link}}})
}
