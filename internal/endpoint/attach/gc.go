// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/endpoint/leftover"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// collector undoes what nobody calls valid.
type collector struct {
	host       *kernel.Conn
	boot       string
	namespaces *namespaces
	locks      *lockSet
	records    *recordStore
	catalog    *catalog
	resolver   *resolver
	delegates  *delegator
	undoer     *undoer
}

// gc undoes every attachment of the network that is not valid, and whatever a killed call left: by the records, by what
// allocators hold, by the marks in the kernel, and by asking foreign plugins to do the same. It goes on after an error.
func (c *collector) gc(ctx context.Context, job Job, valid []model.AttachmentKey) error {
	if job.Network.DisableGC {
		return nil
	}
	release, err := c.locks.of(job.Network.Name).Alone(ctx)
	if err != nil {
		return err
	}
	defer release()
	keep := map[model.AttachmentKey]bool{}
	marks := make([]string, 0, len(valid))
	valid = slices.Clone(valid)
	for i := range valid {
		valid[i].Network = job.Network.Name
		keep[valid[i]] = true
		marks = append(marks, plugin.Mark(valid[i]))
	}
	errs := []error{c.gcRecords(ctx, job.Network.Name, keep), c.resolver.sweepSaved(job, keep)}
	job = c.resolver.resolveAnyhow(job)
	for _, conf := range job.Network.Plugins {
		errs = append(errs, c.gcPlugin(ctx, job, conf, valid))
	}
	network := markPrefix + job.Network.Name + "/"
	errs = append(errs, c.undoer.removeMarked(ctx, true, func(mark string) bool {
		return strings.HasPrefix(mark, network) && !anyMark(mark, marks)
	}))
	errs = append(errs,
		leftover.Take(ctx, c.host, c.catalog.builtinTypes(job), leftover.Scope{Network: job.Network.Name, Valid: valid}))
	errs = append(errs, c.gcShared(ctx, job))
	return errors.Join(errs...)
}

func anyMark(mark string, marks []string) bool {
	for _, m := range marks {
		if sameMark(mark, m) {
			return true
		}
	}
	return false
}

// gcRecords undoes the recorded attachments. An unfinished one has no call any more that works on it.
func (c *collector) gcRecords(ctx context.Context, network string, keep map[model.AttachmentKey]bool) error {
	records, err := c.records.list()
	errs := []error{err}
	var undone []Record
	for _, rec := range records {
		if rec.Request.Network != network || keep[rec.Key()] && rec.Stage == Done && rec.Boot == c.boot {
			continue
		}
		if rec.Stage == Done {
			rec.Stage = Releasing // its shared objects have one owner less
		}
		spaces, done := c.namespaces.ofRecord(rec)
		err := c.undoer.undo(ctx, rec, spaces, spaces.Release)
		done()
		if err != nil {
			errs = append(errs, fmt.Errorf("attachment %s: %w", rec.Key(), err))
			continue
		}
		undone = append(undone, rec)
	}
	if len(undone) > 0 {
		_, err := c.undoer.finish(ctx, undone)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// gcPlugin hands the list of valid attachments to an allocator or a foreign program.
func (c *collector) gcPlugin(ctx context.Context, job Job, conf model.PluginConf, valid []model.AttachmentKey) error {
	if c.catalog.planners[conf.Type] == nil {
		return c.delegates.gc(ctx, job, conf, conf.Type, valid)
	}
	typ, err := c.catalog.ipamType(conf)
	if err != nil || typ == "" {
		return err
	}
	if alloc := c.catalog.allocators[typ]; alloc != nil {
		return alloc.GC(ctx, ipam.Ask{Conf: conf.Raw, Network: job.Network.Name}, valid)
	}
	return c.delegates.gc(ctx, job, conf, typ, valid)
}

// gcShared takes the links that this network's attachments share and that nobody uses any more. A planner asks for
// those before it plans, so its questions name them.
func (c *collector) gcShared(ctx context.Context, job Job) error {
	var f state.Fragment
	var errs []error
	for _, conf := range job.Network.Plugins {
		p := c.catalog.planners[conf.Type]
		if p == nil {
			continue
		}
		queries, err := p.Observe(c.catalog.input(conf, model.Request{Network: job.Network.Name, IfName: "lo"}))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, q := range queries {
			if q.Space == state.Host && q.Link != "" {
				for _, kind := range []state.Kind{state.Veth, state.Bridge} { // a VLAN's gateway, or a bridge
					f.Host.Links = append(f.Host.Links, state.Link{Name: q.Link, Kind: kind, Shared: true})
				}
			}
		}
	}
	f.Host.Tables = plugin.SharedTables()
	return errors.Join(append(errs, c.undoer.removeShared(ctx, f))...)
}
