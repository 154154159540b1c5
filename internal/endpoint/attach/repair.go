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

// repairer repairs the drift of finished attachments.
type repairer struct {
	host       *kernel.Conn
	boot       string
	agent      bool
	namespaces *namespaces
	locks      *lockSet
	records    *notifyingStore
	vms        *podVMs
	repaired   func(things []string)                 // nil: repairs are not counted
	event      func(pod model.PodRef, e model.Event) // nil: no events
	log        *slog.Logger
	now        func() time.Time
	fail       failpoint.Hook

	index  *objectIndex
	queue  *repairQueue
	drifts drifts
}

// written adds a finished attachment to the index, and removes any other.
func (p *repairer) written(r Record) {
	if !p.agent {
		return
	}
	if p.index.note(r, r.Stage == Done && !r.Switching && r.Boot == p.boot) {
		p.queue.wake.Notify()
	}
}

// forgotten removes an attachment from the index.
func (p *repairer) forgotten(k model.AttachmentKey) {
	p.index.drop(k)
	p.drifts.drop(k)
}

// How long a repair waits for a container's lock: briefly at first, so that other attachments are repaired soon, then
// longer.
const (
	repairTryWait = 5 * time.Millisecond
	repairWait    = 5 * time.Second
)

// repairScope is the part of an attachment that is compared.
type repairScope int

const (
	// wholeAttachment is everything but rules of iptables and firewalld, which need a process each.
	wholeAttachment repairScope = iota
	// withoutRules is wholeAttachment without the nftables rules on the node: their deletion is reported separately, and
	// reading them is expensive.
	withoutRules
	// nodeRulesOnly are the rules on the node: nftables, iptables, firewalld.
	nodeRulesOnly
)

// repairAllRules restores the attachments' rules on the node that other programs have removed: nftables elements and
// tables, iptables rules, sources in firewalld's zones. With slowOnly it checks only attachments with rules of the
// latter two, which report no changes. It is idempotent.
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
		switch _, err := p.repair(ctx, r.Key(), repairTryWait, nodeRulesOnly, whole[r.Key()]); {
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

// wholeChains returns the attachments whose iptables rules are complete. They are read at once, because each read
// executes a program, and every DEL of such an attachment triggers a RepairRules.
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
	whole, err := p.host.IPTables().Complete(ctx, values)
	if err != nil {
		return nil // each repair will report it
	}
	out := map[model.AttachmentKey]bool{}
	for i, key := range keys {
		out[key] = whole[i]
	}
	return out
}

// repair repairs one attachment. It holds the container's lock, so that no DEL begins between reading the record and
// changing the kernel.
func (p *repairer) repair(
	ctx context.Context, key model.AttachmentKey, patience time.Duration, how repairScope, chainsWhole bool,
) (bool, error) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	release, err := p.locks.of(key.Network).Container(wait, key.ContainerID)
	if err != nil {
		return false, err
	}
	defer release()
	leave, err := p.locks.of(key.Network).RLock(wait)
	if err != nil {
		return false, err
	}
	defer leave()
	rec, found, err := p.records.get(key)
	if err != nil || !found || rec.Stage != Done || rec.Switching || rec.Boot != p.boot {
		return false, err
	}
	switch {
	case how == nodeRulesOnly:
	case rec.Container != nil:
		if rec.Container.Known {
			return p.repairHandedOver(ctx, rec, how)
		}
	default:
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

// repairWhole repairs an attachment whose pod exists.
func (p *repairer) repairWhole(ctx context.Context, rec Record, spaces kernel.Spaces, how repairScope) (bool, error) {
	prev := rec.Result
	if prev == nil {
		prev = &model.Result{}
	}
	want, err := expectedFragment(ctx, p.agent, rec, prev, spaces)
	if err != nil {
		return false, err
	}
	want = p.vms.compose(rec.Key(), want)
	want.Host.IPTables, want.Host.Sources = nil, nil
	if how == withoutRules {
		want.Host.Tables = nil
	}
	return p.repairSpaces(ctx, rec, want, spaces)
}

// repairSpaces compares the kernel with the wanted state and repairs it.
func (p *repairer) repairSpaces(
	ctx context.Context, rec Record, want state.Fragment, spaces kernel.Spaces,
) (bool, error) {
	// A route by which the pod has replaced one on the same link counts as a changed route, not as a missing one next
	// to a foreign one.
	compared := want
	compared.Pod.Routes = slices.Clone(want.Pod.Routes)
	for i := range compared.Pod.Routes {
		compared.Pod.Routes[i].Coexists = false
	}
	differences, err := compare(ctx, spaces, compared)
	if err != nil {
		return false, err
	}
	now := p.now()
	if spaces.Pod != nil && len(want.Host.Tables) == len(nodeRules(rec).Tables) {
		p.drifts.prune(rec.Key(), differences, now)
	}
	if len(differences) == 0 {
		return false, nil
	}
	r := planRepair(want, differences, func(d found) decision {
		return decide(d, p.drifts.history(rec.Key(), d.Difference), now)
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

// stillOwned drops tables with elements keyed by a link's name if the record's link is gone: another attachment may use
// the name by now.
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

// nodeRules returns the rules of a record's fragment in the node's namespace.
func nodeRules(rec Record) state.Space {
	host := rec.Fragment().Host
	return state.Space{Tables: host.Tables, Sources: host.Sources, IPTables: host.IPTables}
}

// reportDrift stores, counts and logs the decisions, and reports whether anything was repaired.
func (p *repairer) reportDrift(rec Record, r repairPlan, now time.Time) (repaired bool) {
	key, pod := rec.Key(), rec.Pod()
	var things []string
	for _, d := range r.decided {
		p.drifts.note(key, d.Difference, d.decision, now)
		log := p.log.With("attachment", key.String(), "pod", pod.String(), "netns", string(d.Space), "object", d.Want,
			"age", now.Sub(rec.Since()).Round(time.Second).String())
		outcome := "it was repaired"
		if d.repair {
			things = append(things, d.Want)
		} else {
			outcome = "it is not repaired"
		}
		switch {
		case !d.report:
			continue
		case d.repair && !d.recurs:
			log.Info("drift of an attachment was repaired", "have", d.Have)
		case !d.repair && !d.recurs:
			log.Warn("attachment differs from its plan; it is not repaired", "have", d.Have)
		default:
			log.Warn("drift of an attachment recurred within ten minutes; "+outcome, "have", d.Have)
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
