// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// How long Mend waits for a container that another call is about: first hardly, so that the others have their rules
// back soon, then longer.
const (
	mendGlance = 5 * time.Millisecond
	mendWait   = 5 * time.Second
)

// Mend brings back what others have taken away of the attachments' rules on the node: elements and tables of nft, rules
// of the iptables programs, sources in firewalld's zones. Links, addresses and routes it leaves alone: who deletes a pod's
// link means that pod, who flushes the rules means no pod at all. A second Mend writes nothing.
func (a *Attacher) Mend(ctx context.Context) error {
	records, err := a.cfg.Memory.List()
	errs := []error{err}
	whole := a.wholeChains(ctx, records)
	var busy []model.AttachmentKey
	for _, r := range records {
		if r.Stage != Done || nodeRules(r).Empty() {
			continue
		}
		switch err := a.mend(ctx, r.Key(), mendGlance, whole[r.Key()]); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			busy = append(busy, r.Key())
		default:
			errs = append(errs, err)
		}
	}
	for _, key := range busy {
		errs = append(errs, a.mend(ctx, key, mendWait, false))
	}
	return errors.Join(errs...)
}

// wholeChains are the attachments whose rules of iptables are all there. They are looked at in one: each reading is a
// program to be executed, and every DEL of such an attachment, which deletes rules, calls for a Mend.
func (a *Attacher) wholeChains(ctx context.Context, records []Record) map[model.AttachmentKey]bool {
	var keys []model.AttachmentKey
	var values [][]state.IPTables
	for _, r := range records {
		if rules := nodeRules(r).IPTables; r.Stage == Done && len(rules) > 0 {
			keys, values = append(keys, r.Key()), append(values, rules)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	whole, err := a.cfg.Host.IPTables().Whole(ctx, values)
	if err != nil {
		return nil // whoever is mended will say it
	}
	out := map[model.AttachmentKey]bool{}
	for i, key := range keys {
		out[key] = whole[i]
	}
	return out
}

// mend looks after one attachment. It holds the container's lock: between a look at the record and the kernel nobody may
// DEL the attachment.
func (a *Attacher) mend(ctx context.Context, key model.AttachmentKey, patience time.Duration, chainsWhole bool) error {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	release, err := a.cfg.Locks.Container(wait, key.ContainerID)
	if err != nil {
		return err
	}
	defer release()
	leave, err := a.cfg.Locks.Together(wait)
	if err != nil {
		return err
	}
	defer leave()
	rec, found, err := a.cfg.Memory.Get(key)
	if err != nil || !found || rec.Stage != Done {
		return err
	}
	host := nodeRules(rec)
	if chainsWhole {
		host.IPTables = nil
	}
	if host.Empty() {
		return nil
	}
	if host.Tables, err = a.stillOwned(ctx, rec, host.Tables); err != nil {
		return err
	}
	f := state.Fragment{Owner: "mend " + key.String(), Host: host}
	a.countMissing(ctx, f)
	return kernel.Spaces{Host: a.cfg.Host}.Apply(ctx, f)
}

// stillOwned leaves out tables whose elements pass from owner to owner, where the record's link has gone: by now its name may be
// that of another one's.
func (a *Attacher) stillOwned(ctx context.Context, rec Record, tables []state.Table) ([]state.Table, error) {
	passing := func(t state.Table) bool {
		return slices.ContainsFunc(t.Sets, func(s state.Set) bool { return s.Owned && len(s.Elements) > 0 })
	}
	if !slices.ContainsFunc(tables, passing) {
		return tables, nil
	}
	var queries []state.Query
	wanted := map[state.Query]string{}
	for _, l := range rec.Fragment().Host.Links {
		if !l.Shared && l.Kind != "" {
			q := state.Query{Space: state.Host, Link: l.Name}
			queries = append(queries, q)
			wanted[q] = l.Alias
		}
	}
	answers, err := kernel.Spaces{Host: a.cfg.Host}.Observe(ctx, queries)
	if err != nil {
		return nil, err
	}
	for q, alias := range wanted {
		if have := answers[q]; !have.Found || have.Link.Alias != alias {
			return slices.DeleteFunc(slices.Clone(tables), passing), nil
		}
	}
	return tables, nil
}

// countMissing tells what is about to be brought back.
func (a *Attacher) countMissing(ctx context.Context, f state.Fragment) {
	if a.cfg.Repaired == nil {
		return
	}
	differences, err := kernel.Spaces{Host: a.cfg.Host}.Diff(ctx, f)
	if err != nil || len(differences) == 0 {
		return // Apply says what is wrong
	}
	things := make([]string, 0, len(differences))
	for _, d := range differences {
		things = append(things, d.Want)
	}
	a.cfg.Repaired(things)
}

// nodeRules are those of a record's fragment that stand in the node's namespace.
func nodeRules(rec Record) state.Space {
	host := rec.Fragment().Host
	return state.Space{Tables: host.Tables, Sources: host.Sources, IPTables: host.IPTables}
}
