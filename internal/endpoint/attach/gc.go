// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/endpoint/cleanup"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// collector handles GC.
type collector struct {
	host       *kernel.Conn
	boot       string
	namespaces *namespaces
	locks      *lockSet
	records    *notifyingStore
	catalog    *catalog
	resolver   *resolver
	delegates  *delegator
	rollback   *rollback
}

// gc undoes every attachment of the network that is not valid, and what killed calls have left. It goes by the records,
// by what allocators hold and by the marks in the kernel, and executes the GC of foreign plugins. It continues after an
// error.
func (c *collector) gc(ctx context.Context, job Job, valid []model.AttachmentKey) error {
	if job.Network.DisableGC {
		return nil
	}
	release, err := c.locks.of(job.Network.Name).Lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	validKeys := map[model.AttachmentKey]bool{}
	marks := make([]string, 0, len(valid))
	valid = slices.Clone(valid)
	for i := range valid {
		valid[i].Network = job.Network.Name
		validKeys[valid[i]] = true
		marks = append(marks, plugin.Mark(valid[i]))
	}
	errs := []error{c.gcRecords(ctx, job.Network.Name, validKeys), c.resolver.removeStaleDelegates(job, validKeys)}
	job = c.resolver.resolveLenient(job)
	for _, conf := range job.Network.Plugins {
		errs = append(errs, c.gcPlugin(ctx, job, conf, valid))
	}
	network := MarkPrefix + job.Network.Name + "/"
	errs = append(errs, c.rollback.removeMarked(ctx, true, func(mark string) bool {
		return strings.HasPrefix(mark, network) && !anyMark(mark, marks)
	}))
	errs = append(errs,
		cleanup.Remove(ctx, c.host, c.catalog.builtinTypes(job), cleanup.Scope{Network: job.Network.Name, Valid: valid}))
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

// gcRecords undoes recorded attachments. The GC holds the exclusive lock, so no call is working on an unfinished one.
func (c *collector) gcRecords(ctx context.Context, network string, validKeys map[model.AttachmentKey]bool) error {
	records, err := c.records.list()
	errs := []error{err}
	var undone []Record
	for _, rec := range records {
		if rec.Request.Network != network || validKeys[rec.Key()] && rec.Stage == Done && rec.Boot == c.boot {
			continue
		}
		if rec.Stage == Done {
			rec.Stage = Releasing // it no longer owns shared objects
		}
		spaces, done := c.namespaces.ofRecord(rec)
		err := c.rollback.undo(ctx, rec, spaces, spaces.Release)
		done()
		if err != nil {
			errs = append(errs, fmt.Errorf("attachment %s: %w", rec.Key(), err))
			continue
		}
		undone = append(undone, rec)
	}
	if len(undone) > 0 {
		_, err := c.rollback.finish(ctx, undone)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// gcPlugin runs the GC of an allocator or a foreign plugin.
func (c *collector) gcPlugin(ctx context.Context, job Job, conf model.PluginConf, valid []model.AttachmentKey) error {
	if c.catalog.planners[conf.Type] == nil {
		return c.delegates.gc(ctx, job, conf, conf.Type, valid)
	}
	typ, err := c.catalog.ipamType(conf)
	if err != nil || typ == "" {
		return err
	}
	if alloc := c.catalog.allocators[typ]; alloc != nil {
		return alloc.GC(ctx, ipam.Request{Conf: conf.Raw, Network: job.Network.Name}, valid)
	}
	return c.delegates.gc(ctx, job, conf, typ, valid)
}

// gcShared removes the unused links that this network's attachments share. A planner queries them before it plans, so
// its queries name them.
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
				for _, kind := range []state.Kind{state.Veth, state.Bridge} { // the gateway of a VLAN, or a bridge
					f.Host.Links = append(f.Host.Links, state.Link{Name: q.Link, Kind: kind, Shared: true})
				}
			}
		}
	}
	f.Host.Tables = plugin.SharedTables()
	return errors.Join(append(errs, c.rollback.removeShared(ctx, f))...)
}
