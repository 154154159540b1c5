// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// DelAll undoes several attachments of one container; the errors are those of the jobs. What AddAll plans together is
// taken from the kernel together: each link that goes by itself makes the kernel wait, and eight that go at once make it
// wait as long as one.
func (a *Attacher) DelAll(ctx context.Context, jobs []Job) []error {
	errs := make([]error, len(jobs))
	done := a.releaseAll(ctx, jobs)
	for i, job := range jobs {
		if !done[job.Request.Key().String()] {
			errs[i] = a.Del(ctx, job)
		}
	}
	return errs
}

// releaseAll undoes those of the jobs that can be undone together, if there are several, and tells which it has done.
// Whatever goes wrong, Del does it again and says so.
func (a *Attacher) releaseAll(ctx context.Context, jobs []Job) (done map[string]bool) {
	if a.cfg.Reaper == nil || len(jobs) < 2 || a.hasMachine(jobs[0].Request.ContainerID) {
		return nil
	}
	release, err := a.cfg.Locks.Container(ctx, jobs[0].Request.ContainerID)
	if err != nil {
		return nil
	}
	defer release()
	gate, err := a.cfg.Locks.Together(ctx)
	if err != nil {
		return nil
	}
	defer gate()
	records := a.releasable(jobs)
	if len(records) < 2 {
		return nil
	}
	spaces, end := a.delSpaces(jobs[0], records[0])
	defer end()
	done = map[string]bool{}
	for _, rec := range records {
		a.mourn.rest(rec.Request.Network, addresses(rec))
	}
	err = a.takeAll(ctx, records, spaces)
	for _, rec := range records {
		if err == nil && a.giveAll(ctx, rec, spaces) == nil {
			a.bury(rec)
			done[rec.Key().String()] = true
			continue
		}
		a.mourn.rested(rec.Request.Network, addresses(rec))
	}
	if err != nil {
		a.cfg.Log.Info("networks are detached one by one", "container", jobs[0].Request.ContainerID, "err", err)
	}
	return done
}

// releasable are the records of the jobs that can be undone together: of one namespace, finished, all built in, without
// anything that was there before and comes back, and with at most one that has something of the node in common with others.
func (a *Attacher) releasable(jobs []Job) []Record {
	var records []Record
	own := 0
	for _, job := range jobs {
		rec, found, err := a.cfg.Memory.Get(job.Request.Key())
		if err != nil || !found || rec.Stage == Pending || rec.Boot != a.cfg.Boot || !plainActs(rec) ||
			len(records) > 0 && rec.NetnsID != records[0].NetnsID {
			continue
		}
		apart, plain := a.plain(Job{Network: rec.Network})
		if !plain || !apart && own > 0 {
			continue
		}
		if !apart {
			own++
		}
		records = append(records, rec)
	}
	return records
}

// plainActs tells whether a record's acts are addresses first and then what they were for, which nothing was changed for.
func plainActs(rec Record) bool {
	applied := false
	for _, act := range rec.Acts {
		switch act.Kind {
		case ActApply:
			if applied = true; act.Fragment == nil || act.Restore != nil {
				return false
			}
		case ActIPAM:
			if applied || act.Plugin >= len(rec.Network.Plugins) {
				return false
			}
		case ActSave:
		default:
			return false
		}
	}
	return applied
}

// takeAll marks the records as releasing and takes from the kernel what they applied.
func (a *Attacher) takeAll(ctx context.Context, records []Record, spaces kernel.Spaces) error {
	if err := a.step("before releasing"); err != nil {
		return err
	}
	for i := range records {
		records[i].Stage = Releasing
	}
	if err := a.put(records...); err != nil {
		// A memory that cannot be written is no reason to keep the addresses and the links.
		a.cfg.Log.Warn("records are not marked as releasing", "container", records[0].Request.ContainerID, "err", err)
	}
	if err := a.step("after releasing"); err != nil {
		return err
	}
	all := state.Fragment{Owner: plugin.Owner(records[0].Key())}
	for _, rec := range records {
		all.Merge(rec.Fragment())
	}
	if err := a.step("before undo " + string(ActApply)); err != nil {
		return err
	}
	if err := spaces.Release(ctx, all); err != nil {
		return err
	}
	return a.step("after undo " + string(ActApply))
}

// giveAll removes a record's files and gives its addresses back.
func (a *Attacher) giveAll(ctx context.Context, rec Record, spaces kernel.Spaces) error {
	for _, act := range rec.Acts {
		if err := removeFiles(act.Files); err != nil {
			return err
		}
	}
	rec.Acts = addressActs(rec.Acts)
	return a.undo(ctx, rec, spaces, spaces.Release)
}

func addressActs(acts []Act) []Act {
	var out []Act
	for _, act := range acts {
		if act.Kind == ActIPAM {
			out = append(out, act)
		}
	}
	return out
}
