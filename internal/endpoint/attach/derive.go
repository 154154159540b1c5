// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/weft-net/weft/internal/endpoint/cleanup"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// deriver undoes attachments without a record.
type deriver struct {
	host       *kernel.Conn
	namespaces *namespaces
	catalog    *catalog
	resolver   *resolver
	delegates  *delegator
	rollback   *rollback
	log        *slog.Logger
}

// undoDerived undoes an attachment without a record: it removes what its configuration and its marks identify. It
// continues after an error.
func (v *deriver) undoDerived(ctx context.Context, job Job) error {
	var errs []error
	// A list without the plugin that creates the interface is a part of a list; another part owns the interface.
	whole := false
	for _, conf := range slices.Backward(job.Network.Plugins) {
		p := v.catalog.planners[conf.Type]
		if p == nil {
			errs = append(errs, v.delegates.del(ctx, job.Network, job.Request, conf, conf.Type, job.Prev))
			continue
		}
		typ, err := v.catalog.ipamType(conf)
		if err != nil {
			v.log.Warn("addresses cannot be released: the ipam section is invalid", "network", job.Network.Name,
				"plugin", conf.Type, "err", err)
		}
		if v.catalog.needsLink(typ) { // it may need the interface to release the addresses
			errs = append(errs, v.releaseAddresses(ctx, job, conf, typ))
		}
		errs = append(errs, v.undoTraces(ctx, job, conf))
		if p.Capabilities().MakesInterface {
			whole = true
			errs = append(errs, v.deleteInterface(ctx, job))
		}
		if !v.catalog.needsLink(typ) {
			errs = append(errs, v.releaseAddresses(ctx, job, conf, typ))
		}
	}
	key := job.Request.Key()
	errs = append(errs,
		cleanup.Remove(ctx, v.host, v.catalog.builtinTypes(job), cleanup.Scope{Network: key.Network, Key: &key}))
	mark := plugin.Mark(key)
	return errors.Join(
		append(errs, v.rollback.removeMarked(ctx, whole, func(m string) bool { return sameMark(m, mark) }))...,
	)
}

func (v *deriver) releaseAddresses(ctx context.Context, job Job, conf model.PluginConf, typ string) error {
	if typ == "" {
		return nil
	}
	if alloc := v.catalog.allocators[typ]; alloc != nil {
		return alloc.Del(ctx, allocateRequest(job.Request, conf))
	}
	return v.delegates.del(ctx, job.Network, job.Request, conf, typ, job.Prev)
}

// interfaceKinds returns the kinds of the interfaces that plugins create.
func interfaceKinds() []state.Kind {
	return []state.Kind{state.Veth, state.Macvlan, state.Ipvlan, state.VLAN, state.Dummy, state.Tap, state.Macvtap}
}

// deleteInterface deletes the container's interface, and with it the other end of a veth pair.
func (v *deriver) deleteInterface(ctx context.Context, job Job) error {
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

// undoTraces undoes what the reference plugin did, as far as it can be identified, also if the container's namespace is
// gone.
func (v *deriver) undoTraces(ctx context.Context, job Job, conf model.PluginConf) error {
	t := v.catalog.capabilities(conf).Trace
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
	act.setRestore(step.Restore)
	if step.Backup != nil {
		act.Files = []plugin.File{*step.Backup}
	}
	return v.rollback.undoApply(ctx, Record{Request: job.Request}, act, spaces, spaces.Remove)
}

// undoDerivedSaved undoes an attachment without a record by the delegate that the reference plugin has saved, else by
// the delegate that flanneld's subnet file yields now. Without either the flannel plugin is skipped, and what the other
// plugins of the list made is removed all the same.
func (v *deriver) undoDerivedSaved(ctx context.Context, job Job) error {
	var files []plugin.File
	job, err := v.resolver.replace(v.resolver.withAny(job),
		func(job *Job, conf model.PluginConf) (model.PluginConf, error) {
			d, path, err := findSaved(conf, job.Request)
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
				v.log.Warn("flannel's delegate cannot be determined", "network", job.Network.Name, "err", err)
				return conf, nil
			}
			return d, nil
		})
	if err != nil {
		return err
	}
	if err := v.undoDerived(ctx, job); err != nil {
		return err
	}
	return removeFiles(files)
}
