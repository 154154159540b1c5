// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/endpoint/leftover"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// GC undoes every attachment of the network that is not valid, and whatever a killed call left: by the records, by what
// allocators hold, by the marks in the kernel, and by asking foreign plugins to do the same. It goes on after an error.
func (a *Attacher) GC(ctx context.Context, job Job, valid []model.AttachmentKey) error {
	if job.Network.DisableGC {
		return nil
	}
	release, err := a.locks(job.Network.Name).Alone(ctx)
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
	errs := []error{a.gcRecords(ctx, job.Network.Name, keep), a.gcSaved(job, keep)}
	job = a.unfoldAnyhow(job)
	for _, conf := range job.Network.Plugins {
		errs = append(errs, a.gcPlugin(ctx, job, conf, valid))
	}
	network := markPrefix + job.Network.Name + "/"
	errs = append(errs, a.takeMarked(ctx, true, func(mark string) bool {
		return strings.HasPrefix(mark, network) && !anyMark(mark, marks)
	}))
	errs = append(errs, leftover.Take(ctx, a.cfg.Host, a.builtinTypes(job), leftover.Scope{Network: job.Network.Name, Valid: valid}))
	errs = append(errs, a.gcShared(ctx, job))
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
func (a *Attacher) gcRecords(ctx context.Context, network string, keep map[model.AttachmentKey]bool) error {
	records, err := a.cfg.Memory.List()
	errs := []error{err}
	var undone []Record
	for _, rec := range records {
		if rec.Request.Network != network || keep[rec.Key()] && rec.Stage == Done && rec.Boot == a.cfg.Boot {
			continue
		}
		if rec.Stage == Done {
			rec.Stage = Releasing // its shared objects have one owner less
		}
		spaces, done := a.recordSpaces(rec)
		err := a.undo(ctx, rec, spaces, spaces.Release)
		done()
		if err != nil {
			errs = append(errs, fmt.Errorf("attachment %s: %w", rec.Key(), err))
			continue
		}
		undone = append(undone, rec)
	}
	if len(undone) > 0 {
		_, err := a.bringOut(ctx, undone)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// gcPlugin hands the list of valid attachments to an allocator or a foreign program.
func (a *Attacher) gcPlugin(ctx context.Context, job Job, conf model.PluginConf, valid []model.AttachmentKey) error {
	if a.cfg.Planners[conf.Type] == nil {
		return a.foreignGC(ctx, job, conf, conf.Type, valid)
	}
	typ, err := a.ipamType(conf)
	if err != nil || typ == "" {
		return err
	}
	if alloc := a.cfg.Allocators[typ]; alloc != nil {
		return alloc.GC(ctx, ipam.Ask{Conf: conf.Raw, Network: job.Network.Name}, valid)
	}
	return a.foreignGC(ctx, job, conf, typ, valid)
}

func (a *Attacher) foreignGC(ctx context.Context, job Job, conf model.PluginConf, typ string, valid []model.AttachmentKey) error {
	if !cni.AtLeast(job.Network.CNIVersion, "1.1.0") {
		return nil
	}
	stdin, err := cni.WithValid(conf, job.Network.CNIVersion, valid)
	if err != nil {
		return err
	}
	_, err = a.cfg.Exec.Run(ctx, foreign.Call{Verb: cni.GC, Type: typ, Request: job.Request, Conf: stdin})
	return err
}

// gcShared takes the links that this network's attachments share and that nobody uses any more. A planner asks for those
// before it plans, so its questions name them.
func (a *Attacher) gcShared(ctx context.Context, job Job) error {
	var f state.Fragment
	var errs []error
	for _, conf := range job.Network.Plugins {
		p := a.cfg.Planners[conf.Type]
		if p == nil {
			continue
		}
		queries, err := p.Observe(plugin.Input{Conf: conf, Request: model.Request{Network: job.Network.Name, IfName: "lo"}})
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
	return errors.Join(append(errs, a.removeShared(ctx, f))...)
}
