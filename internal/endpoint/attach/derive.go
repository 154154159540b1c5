// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/weft-net/weft/internal/endpoint/leftover"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// deriver undoes attachments that nothing is recorded of.
type deriver struct {
	host       *kernel.Conn
	namespaces *namespaces
	catalog    *catalog
	resolver   *resolver
	delegates  *delegator
	undoer     *undoer
	log        *slog.Logger
}

// derive undoes an attachment that nothing is recorded of: what the configuration and the marks lead to. It goes on
// after an error.
func (v *deriver) derive(ctx context.Context, job Job) error {
	var errs []error
	whole := false // a list that does not make the interface is a part of one, and the interface another part's
	for _, conf := range slices.Backward(job.Network.Plugins) {
		p := v.catalog.planners[conf.Type]
		if p == nil {
			errs = append(errs, v.delegates.del(ctx, job.Network, job.Request, conf, conf.Type, job.Prev))
			continue
		}
		typ, err := v.catalog.ipamType(conf)
		if err != nil {
			v.log.Warn("no address is released: the ipam section is not valid", "network", job.Network.Name,
				"plugin", conf.Type, "err", err)
		}
		if v.catalog.late(typ) { // it may need the interface to give the addresses back
			errs = append(errs, v.releaseAddresses(ctx, job, conf, typ))
		}
		errs = append(errs, v.traces(ctx, job, conf))
		if p.Capabilities().MakesInterface {
			whole = true
			errs = append(errs, v.takeInterface(ctx, job))
		}
		if !v.catalog.late(typ) {
			errs = append(errs, v.releaseAddresses(ctx, job, conf, typ))
		}
	}
	key := job.Request.Key()
	errs = append(errs,
		leftover.Take(ctx, v.host, v.catalog.builtinTypes(job), leftover.Scope{Network: key.Network, Key: &key}))
	mark := plugin.Mark(key)
	return errors.Join(
		append(errs, v.undoer.removeMarked(ctx, whole, func(m string) bool { return sameMark(m, mark) }))...,
	)
}

func (v *deriver) releaseAddresses(ctx context.Context, job Job, conf model.PluginConf, typ string) error {
	if typ == "" {
		return nil
	}
	if alloc := v.catalog.allocators[typ]; alloc != nil {
		return alloc.Del(ctx, ask(job.Request, conf))
	}
	return v.delegates.del(ctx, job.Network, job.Request, conf, typ, job.Prev)
}

// interfaceKinds are the kinds of the interfaces that plugins make.
func interfaceKinds() []state.Kind {
	return []state.Kind{state.Veth, state.Macvlan, state.Ipvlan, state.Vlan, state.Dummy, state.Tap}
}

// takeInterface deletes the container's interface, which a virtual link's other end follows.
func (v *deriver) takeInterface(ctx context.Context, job Job) error {
	if job.Netns == nil {
		return nil
	}
	spaces, done, err := v.namespaces.open(job.Netns)
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
	return spaces.Remove(ctx, state.Fragment{
		Owner: plugin.Owner(job.Request.Key()), Pod: state.Space{Links: []state.Link{link}},
	})
}

// traces undoes what the reference plugin did, as far as its traces tell: also when the container's namespace has gone.
func (v *deriver) traces(ctx context.Context, job Job, conf model.PluginConf) error {
	t := v.catalog.can(conf).Trace
	if t == nil {
		return nil
	}
	in := v.catalog.input(conf, job.Request)
	in.Chain.Prev = job.Prev
	spaces := kernel.Spaces{Host: v.host}
	if job.Netns != nil {
		open, done, err := v.namespaces.open(job.Netns)
		if err != nil {
			return err
		}
		defer done()
		spaces = open
	}
	var err error
	if in.Answers, err = spaces.Observe(ctx, t.Trace(in)); err != nil {
		return err
	}
	step := t.Traces(in)
	act := Act{Kind: ActApply, Fragment: &step.Fragment}
	act.keep(step.Restore)
	if step.Backup != nil {
		act.Files = []plugin.File{*step.Backup}
	}
	return v.undoer.takeBack(ctx, Record{Request: job.Request}, act, spaces, spaces.Remove)
}

// deriveSaved undoes an attachment that nothing is recorded of, by the delegate that the reference plugin wrote down.
// Where there is none, the one that flanneld's word leads to now may do; without that, or with a configuration that is
// refused, there is nothing to be found, and what the other plugins of the list made is taken away all the same.
func (v *deriver) deriveSaved(ctx context.Context, job Job) error {
	var files []plugin.File
	job, err := v.resolver.replace(v.resolver.withAny(job),
		func(job *Job, conf model.PluginConf) (model.PluginConf, error) {
			d, path, err := saved(conf, job.Request)
			if path != "" {
				files = append(files, plugin.File{Path: path})
				return d, nil
			}
			if err == nil {
				if d, err = delegate(conf); err != nil {
					d, err = plugin.Flannel{}.Delegate(conf, plugin.FlannelNode{})
				}
			}
			if err != nil {
				v.log.Warn("no delegate to detach", "network", job.Network.Name, "err", err)
				return conf, nil
			}
			return d, nil
		})
	if err != nil {
		return err
	}
	if err := v.derive(ctx, job); err != nil {
		return err
	}
	return removeFiles(files)
}
