// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// repairer keeps finished attachments as their ADDs have left them.
type repairer struct {
	host       *kernel.Conn
	boot       string
	agent      bool
	namespaces *namespaces
	locks      *lockSet
	records    *recordStore
	machines   *machinesIn
	repaired   func(things []string)                 // nil: nobody counts
	event      func(pod model.PodRef, e model.Event) // nil: nobody reads
	log        *slog.Logger
	now        func() time.Time
	fail       failpoint.Hook

	index  *objectIndex
	queue  *repairQueue
	drifts drifts
}

// written has a finished attachment be watched, and no other.
func (p *repairer) written(r Record) {
	if !p.agent {
		return
	}
	if p.index.note(r, r.Stage == Done && !r.Turning && r.Boot == p.boot) {
		p.queue.wake.Notify()
	}
}

// forgotten has an attachment be watched no longer.
func (p *repairer) forgotten(k model.AttachmentKey) {
	p.index.drop(k)
	p.drifts.drop(k)
}

// How long a repair waits for a container that another call is about: first hardly, so that the others are repaired
// soon, then longer.
const (
	repairGlance = 5 * time.Millisecond
	repairWait   = 5 * time.Second
)

// extent is how much of an attachment is looked at.
type extent int

const (
	// wholeAttachment is all but the rules of the host's own programs, which each need a process.
	wholeAttachment extent = iota
	// withoutRules is wholeAttachment without the rules of nft on the node, whose loss is reported by itself: to read them
	// costs most.
	withoutRules
	// nodeRulesOnly are the rules on the node: nft, iptables, firewalld.
	nodeRulesOnly
)

// repairAllRules puts back what others have taken away of the attachments' rules on the node: elements and tables of
// nft, rules of the iptables programs, sources in firewalld's zones. With slowOnly it looks only at attachments with
// rules of the latter two, which report nothing. A second one writes nothing.
func (p *repairer) repairAllRules(ctx context.Context, slowOnly bool) error {
	records, err := p.records.list()
	errs := []error{err}
	whole := p.wholeChains(ctx, records)
	var busy []model.AttachmentKey
	for _, r := range records {
		rules := nodeRules(r)
		if slowOnly && len(rules.IPTables)+len(rules.Sources) == 0 || r.Stage != Done || rules.Empty() {
			continue
		}
		switch _, err := p.repair(ctx, r.Key(), repairGlance, nodeRulesOnly, whole[r.Key()]); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			busy = append(busy, r.Key())
		default:
			errs = append(errs, err)
		}
	}
	for _, key := range busy {
		_, err := p.repair(ctx, key, repairWait, nodeRulesOnly, false)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// wholeChains are the attachments whose rules of iptables are all there. They are looked at in one: each reading is a
// program to be executed, and every DEL of such an attachment, which deletes rules, calls for a RepairRules.
func (p *repairer) wholeChains(ctx context.Context, records []Record) map[model.AttachmentKey]bool {
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
	whole, err := p.host.IPTables().Whole(ctx, values)
	if err != nil {
		return nil // the repair of each will say it
	}
	out := map[model.AttachmentKey]bool{}
	for i, key := range keys {
		out[key] = whole[i]
	}
	return out
}

// repair looks after one attachment. It holds the container's lock: between a look at the record and the kernel no DEL
// may begin, so that nothing is put back of an attachment that goes.
func (p *repairer) repair(
	ctx context.Context, key model.AttachmentKey, patience time.Duration, how extent, chainsWhole bool,
) (bool, error) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	release, err := p.locks.of(key.Network).Container(wait, key.ContainerID)
	if err != nil {
		return false, err
	}
	defer release()
	leave, err := p.locks.of(key.Network).Together(wait)
	if err != nil {
		return false, err
	}
	defer leave()
	rec, found, err := p.records.get(key)
	if err != nil || !found || rec.Stage != Done || rec.Turning || rec.Boot != p.boot {
		return false, err
	}
	if how != nodeRulesOnly {
		spaces, done := p.namespaces.ofRecord(rec)
		defer done()
		if spaces.Pod != nil {
			return p.repairWhole(ctx, rec, spaces, how)
		}
	}
	host := nodeRules(rec)
	if chainsWhole {
		host.IPTables = nil
	}
	if host.Empty() {
		return false, nil
	}
	if host.Tables, err = p.stillOwned(ctx, rec, host.Tables); err != nil {
		return false, err
	}
	return p.repairSpaces(ctx, rec, state.Fragment{Host: host}, kernel.Spaces{Host: p.host})
}

// repairWhole looks after everything of an attachment whose pod is there.
func (p *repairer) repairWhole(ctx context.Context, rec Record, spaces kernel.Spaces, how extent) (bool, error) {
	prev := rec.Result
	if prev == nil {
		prev = &model.Result{}
	}
	want, err := expected(ctx, p.agent, rec, prev, spaces)
	if err != nil {
		return false, err
	}
	want = p.machines.compose(rec.Key(), want)
	want.Host.IPTables, want.Host.Sources = nil, nil
	if how == withoutRules {
		want.Host.Tables = nil
	}
	return p.repairSpaces(ctx, rec, want, spaces)
}

// repairSpaces compares and puts back.
func (p *repairer) repairSpaces(
	ctx context.Context, rec Record, want state.Fragment, spaces kernel.Spaces,
) (bool, error) {
	// A route that the pod has put in the place of one on the same link differs; it is not one that coexists with a
	// missing one.
	compared := want
	compared.Pod.Routes = slices.Clone(want.Pod.Routes)
	for i := range compared.Pod.Routes {
		compared.Pod.Routes[i].Coexists = false
	}
	found, err := spaces.Diff(ctx, compared)
	if err != nil {
		return false, err
	}
	now := p.now()
	if spaces.Pod != nil && len(want.Host.Tables) == len(nodeRules(rec).Tables) {
		p.drifts.settle(rec.Key(), found, now)
	}
	if len(found) == 0 {
		return false, nil
	}
	r := repairOf(want, found, func(d state.Difference, can bool) decision {
		return decide(d, can, p.drifts.past(rec.Key(), d), now)
	})
	if r.host.Tables, err = p.stillOwned(ctx, rec, r.host.Tables); err != nil {
		return true, err
	}
	if err := p.fail.At("before repair"); err != nil {
		return true, err
	}
	between := func() error { return p.fail.At("after repair of node") }
	if err := r.apply(ctx, spaces, "repair "+rec.Key().String(), between); err != nil {
		return true, err
	}
	return p.reportDrift(rec, r, now), p.fail.At("after repair")
}

// stillOwned leaves out tables whose elements pass from owner to owner, where the record's link has gone: by now its
// name may be that of another one's.
func (p *repairer) stillOwned(ctx context.Context, rec Record, tables []state.Table) ([]state.Table, error) {
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
	answers, err := kernel.Spaces{Host: p.host}.Observe(ctx, queries)
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

// nodeRules are those of a record's fragment that stand in the node's namespace.
func nodeRules(rec Record) state.Space {
	host := rec.Fragment().Host
	return state.Space{Tables: host.Tables, Sources: host.Sources, IPTables: host.IPTables}
}

// reportDrift remembers, counts and logs what was decided, and reports whether anything was put back.
func (p *repairer) reportDrift(rec Record, r repairPlan, now time.Time) (repaired bool) {
	key, pod := rec.Key(), rec.pod()
	var things []string
	for _, d := range r.decided {
		p.drifts.note(key, d.Difference, d.decision, now)
		log := p.log.With("attachment", key.String(), "pod", pod.String(), "namespace", string(d.Space), "object", d.Want,
			"age", now.Sub(rec.Since()).Round(time.Second).String())
		outcome := "it was put back"
		if d.repair {
			things = append(things, d.Want)
		} else {
			outcome = "it is left as it is"
		}
		switch {
		case !d.report:
			continue
		case d.repair && !d.recurs:
			log.Info("repaired drift of an attachment", "have", d.Have)
		case !d.repair && !d.recurs:
			log.Warn("attachment differs from its plan; it is left as it is", "have", d.Have)
		default:
			log.Warn("drift of an attachment came back within ten minutes; "+outcome, "have", d.Have)
			p.driftEvent(pod, rec, d.Difference, outcome)
		}
	}
	if len(things) > 0 && p.repaired != nil {
		p.repaired(things)
	}
	return len(things) > 0
}

func (p *repairer) driftEvent(pod model.PodRef, rec Record, d state.Difference, outcome string) {
	if p.event == nil || pod.Name == "" {
		return
	}
	where := "in the pod"
	if d.Space == state.Host {
		where = "on the node"
	}
	p.event(pod, model.Event{Warning: true, Reason: "NetworkDrift", Message: fmt.Sprintf(
		"network %s, interface %s, %s: %s was removed or changed twice within ten minutes; %s", rec.Request.Network,
		rec.Request.IfName, where, d.Want, outcome)})
}
