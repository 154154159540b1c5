// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"math"
	"time"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// rulesQuiet coalesces deletions of rules: a firewall that reloads deletes one table after another.
	rulesQuiet = 50 * time.Millisecond
	// slowRulesPeriod is how often rules of legacy iptables and firewalld are compared, which report no changes.
	slowRulesPeriod = 5 * time.Minute
	// resolveLate is how long a new pod's namespace may wait for its nsid, resolveSoon how long if changes wait for it.
	// Each ADD and DEL causes some changes, and a query blocks the node's socket for the next call.
	resolveLate, resolveSoon = time.Second, 50 * time.Millisecond
	// podTables is the prefix of the names of attachments' nft tables in pods. Policies' tables have another one.
	podTables = "weft_"
)

// ReconcileConfig configures Reconcile.
type ReconcileConfig struct {
	After func(time.Duration) <-chan time.Time
	// OtherOwners are the nftables tables that other components repair, with the netlink ports that write them.
	OtherOwners []watch.Owner
}

// reconciler repairs the drift of attachments.
type reconciler struct {
	*repairer
	ReconcileConfig
	rules <-chan struct{} // notified when rules on the node were deleted; nil: not reported
	// The next check of reported rules, of unreported rules, of the next attachment of the pass, and of new namespaces.
	rulesDue, slowDue, passDue, resolveDue time.Time
}

// reconcile repairs the drift of finished attachments until ctx ends: all of them at the start, then those that the
// kernel reports, and in a slow pass all others. Pod namespaces are watched through the node's nsids, which does not
// keep them alive.
func (p *repairer) reconcile(ctx context.Context, c ReconcileConfig) error {
	r := &reconciler{repairer: p, ReconcileConfig: c}
	ctx, cancel := context.WithCancel(ctx)
	ended := r.listen(ctx)
	defer func() {
		cancel()
		for _, done := range ended {
			<-done
		}
	}()
	now := p.now()
	r.rulesDue, r.slowDue, r.passDue, r.resolveDue = now, now.Add(slowRulesPeriod), now.Add(repairPeriod/10), now
	p.queue.add(now, changeOnNode, p.index.all()...)
	for ctx.Err() == nil {
		if wait := r.step(ctx); wait > 0 && ctx.Err() == nil {
			r.wait(ctx, wait)
		}
	}
	return nil
}

// listen subscribes to changes. What is not reported is found by the pass.
func (r *reconciler) listen(ctx context.Context) (ended []<-chan struct{}) {
	port, err := r.host.LinkPort()
	if err == nil {
		var done <-chan struct{}
		if done, err = watch.Changes(ctx, nil, watch.Scope{Port: port}, r.onNode); err == nil {
			ended = append(ended, done)
		}
	}
	if err != nil {
		r.log.Warn("changes on the node cannot be watched; drift is found by the periodic pass only", "err", err)
	}
	done, err := watch.Changes(ctx, nil, watch.Scope{Others: true}, r.inPod)
	if err != nil {
		r.log.Warn("changes in pods cannot be watched; drift is found by the periodic pass only", "err", err)
	} else {
		ended = append(ended, done)
	}
	own, err := r.host.Port()
	if err == nil {
		r.rules, err = watch.RulesGone(ctx, nil, own, r.OtherOwners...)
	}
	if err != nil {
		r.log.Warn("deletions of rules cannot be watched; they are found by the periodic pass only", "err", err)
		return ended
	}
	if done, err = watch.TableChanges(ctx, nil, podTables, own, r.inPod); err != nil {
		r.log.Warn("rules in pods cannot be watched; drift is found by the periodic pass only", "err", err)
	} else {
		ended = append(ended, done)
	}
	return ended
}

// onNode handles a change in the node's namespace.
func (r *reconciler) onNode(c watch.Change) {
	lost, near := r.index.onNode(c, r.vms.has)
	r.queue.add(r.now(), lossOnNode, lost...)
	r.queue.add(r.now(), changeOnNode, near...)
}

// inPod handles a change in another namespace.
func (r *reconciler) inPod(c watch.Change) {
	now := r.now()
	if c.Kind == watch.Lost && !r.queue.allowLossPass(now) {
		return
	}
	keys, unknown := r.index.inPod(c, r.vms.has)
	r.queue.add(now, changeInPod, keys...)
	if unknown {
		r.queue.wake.Notify()
	}
}

// step does one check that is due, or returns the time until the next one.
func (r *reconciler) step(ctx context.Context) time.Duration {
	now := r.now()
	r.resolve(ctx, now)
	if !r.rulesDue.After(now) && !r.rulesDue.IsZero() {
		r.repairRules(ctx, false)
		return 0
	}
	if !r.slowDue.After(now) {
		r.repairRules(ctx, true)
		return 0
	}
	if !r.passDue.After(now) {
		key, is, wait := r.queue.next(r.index.all)
		if r.passDue = now.Add(max(wait, repairQuiet)); is {
			r.repairOne(ctx, key, causeSet{}, wholeAttachment)
			return 0
		}
	}
	key, by, is, wait := r.queue.take(now)
	if is {
		r.repairOne(ctx, key, by, withoutRules)
		return 0
	}
	for _, due := range []time.Time{r.rulesDue, r.slowDue, r.passDue, r.resolveDue} {
		if !due.IsZero() {
			wait = min(wait, due.Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

// repairOne repairs one attachment and schedules its next check.
func (r *reconciler) repairOne(ctx context.Context, key model.AttachmentKey, by causeSet, how repairScope) {
	drifted, err := r.repair(ctx, key, repairTryWait, how, false)
	if r.queue.finished(key, by, drifted, r.index.has(key), err, r.now()) && ctx.Err() == nil {
		r.log.Error("attachment cannot be repaired; retrying", "attachment", key.String(), "err", err)
	}
}

// repairRules repairs the rules of all attachments.
func (r *reconciler) repairRules(ctx context.Context, slowOnly bool) {
	err := r.repairAllRules(ctx, slowOnly)
	if err != nil && ctx.Err() == nil {
		r.log.Error("rules of attachments cannot be repaired; retrying", "err", err)
	}
	now := r.now()
	switch {
	case slowOnly:
		r.slowDue = now.Add(slowRulesPeriod)
	case err != nil:
		r.rulesDue = now.Add(repairRetry)
	default:
		r.rulesDue = time.Time{}
	}
}

// wait waits for a change or a timeout.
func (r *reconciler) wait(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-r.queue.wake:
	case _, open := <-r.rules:
		if !open {
			r.rules = nil
			return
		}
		if due := r.now().Add(rulesQuiet); r.rulesDue.IsZero() || due.Before(r.rulesDue) {
			r.rulesDue = due
		}
	case <-r.After(min(wait, math.MaxInt64)):
	}
}

// resolve queries nsids, several at once: soon if changes wait for it, later if there are only new pods.
func (r *reconciler) resolve(ctx context.Context, now time.Time) {
	fresh, waiting := r.index.unresolved()
	if !fresh && !waiting {
		r.resolveDue = time.Time{}
		return
	}
	due := now.Add(resolveLate)
	if waiting {
		due = now.Add(resolveSoon)
	}
	if r.resolveDue.IsZero() || due.Before(r.resolveDue) {
		r.resolveDue = due
	}
	if r.resolveDue.After(now) {
		return
	}
	r.resolveDue = time.Time{}
	ids, unreported := map[uint64]int{}, []uint64{}
	for inode, path := range r.index.withoutNSID() {
		ns, err := netns.Open(path)
		if err != nil {
			continue // the pod is being deleted
		}
		if id, err := ns.ID(); err == nil && id == inode {
			nsid, assigned, err := r.host.NamespaceID(ctx, ns)
			if err == nil {
				ids[inode] = nsid
			}
			if assigned {
				unreported = append(unreported, inode)
			}
		}
		_ = ns.Close()
	}
	r.queue.add(now, changeInPod, r.index.resolve(ids, unreported)...)
}
